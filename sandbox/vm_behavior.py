"""Simulates KubeVirt's VM controller: it creates storage, starts and stops VMIs, and writes VM statuses. It is pure.

A status that is written in the same step as a start or stop describes the VMI before the step. An ended VMI keeps the
VM controller's finalizer until its result is in the VM's status.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

import msgspec

from controller.kubevirt.normal_form import VMI_TEMPLATE, is_same
from informers.meta import annotations_of
from sandbox.datavolumes import DATA_VOLUMES, is_handed_over, phase_of_volume
from sandbox.instance_types import applied, stored
from sandbox.live_update import Update, update_for
from sandbox.settings import BEHAVIOR, DEFAULT, SimulationSettings, read_settings
from sandbox.step import Change, Delete, Effect, Step, adoption, can_be_adopted, patch_of
from sandbox.vm_status import (
    PROVISIONED,
    START,
    STOP,
    Pass,
    RelatedObjects,
    Situation,
    asks_for,
    must_rerun,
    next_status,
)
from sandbox.vmi_status import vmi_patch
from sandbox.vmis import CONTROLLER_FINALIZER, OBSERVED_VERSIONS, VMIS, SimulatedVMI, is_observed
from sandbox.vms import (
    GENERATION,
    VMS,
    SimulatedVM,
    create,
    finalizer_patch,
    record_start,
    spec_in,
    start,
    start_revision,
)

NO_DATA_VOLUMES: Final = (
    "FailedCreate",
    "Error encountered while creating DataVolumes: the server could not find the requested resource",
)

ORPHAN: Final = "orphan"
"""The finalizer that `--cascade=orphan` adds to a deleted VM."""


def next_step(
    vm: SimulatedVM, related: RelatedObjects, now: datetime, *, defaults: SimulationSettings = DEFAULT
) -> Step:
    settings = read_settings(vm.template.annotations, defaults=defaults)
    if settings.detail == "full" and not is_observed(vm.metadata):
        return Step(write=patch_of(vm.metadata, metadata={"annotations": OBSERVED_VERSIONS}))
    if vm.metadata.deletion_timestamp is not None:
        return _delete(Situation(vm, related, now, settings))
    if not vm.has_finalizer:
        return Step(write=finalizer_patch(vm, finalizer=True))
    storage = (*_adopt(vm, related), *_missing_data_volumes(vm, related, settings))
    if storage:
        return Step(effects=storage)
    lacking, failure = stored(vm, related.revisions, related.definitions)
    if lacking:
        return Step(effects=lacking)
    return _run(Situation(vm, related, now, settings), failure)


def _run(situation: Situation, failure: tuple[str, str] | None) -> Step:
    vm, own_vmi, related, now = situation.vm, situation.own_vmi, situation.related, situation.now
    bumped = _generation_bump(vm, own_vmi, related)
    effects: list[Effect] = [bumped] if bumped is not None else []
    is_provisioned = vm.strategy == "Halted" or _provisioned(vm, related)
    stops = own_vmi is not None and not own_vmi.is_terminating and is_provisioned and _must_stop(vm, own_vmi)
    starts = related.vmi is None and is_provisioned and _must_start(vm, now) and failure is None
    if own_vmi is not None and stops:
        effects.append(_stop(own_vmi))
    if starts:
        effects += (*record_start(vm, related.revisions), start(vm, applied(vm, related.revisions), now))
    update = _update(vm, own_vmi, related) if is_provisioned else None
    if update is not None and update.patch is not None and not stops:
        effects.append(Change(VMIS, vm.metadata.name, update.patch))
    lacks_data_volumes = vm.data_volume_templates and not related.serves_data_volumes
    done = Pass(
        starts=starts,
        stops=stops,
        generation=None if own_vmi is None else _generation_in(own_vmi) if bumped is None else vm.generation,
        restart_message=None if update is None else update.restart_message,
        failure=failure or (NO_DATA_VOLUMES if lacks_data_volumes else update.failure if update is not None else None),
    )
    if starts and situation.settings.detail == "short":
        return Step(effects=tuple(effects))
    wait_s = _backoff_s(vm, now) if own_vmi is None else None
    return _with_status(situation, done, tuple(effects)) or Step(after_s=wait_s)


def _with_status(situation: Situation, done: Pass, effects: tuple[Effect, ...] = ()) -> Step | None:
    """Return the step, or None. With the result of an ended VMI in the status, it removes the VMI's finalizer."""
    vm, own_vmi = situation.vm, situation.own_vmi
    status = next_status(situation, done)
    if status != vm.status:
        # The server ignores the UID in a write of a status.
        return Step(effects=effects, write=patch_of(vm.metadata, "status", versioned=True, status=status))
    if not effects and own_vmi is not None and _is_releasable(own_vmi):
        effects = (_release(own_vmi),)
    return Step(effects=effects) if effects else None


def _is_releasable(own_vmi: SimulatedVMI) -> bool:
    return own_vmi.is_final and CONTROLLER_FINALIZER in own_vmi.finalizers


def _release(own_vmi: SimulatedVMI) -> Change:
    left = tuple(name for name in own_vmi.finalizers if name != CONTROLLER_FINALIZER)
    return Change(VMIS, own_vmi.metadata.name, vmi_patch(own_vmi, finalizers=left))


def _delete(situation: Situation) -> Step:
    """Return the next step of a deleted VM. With `orphan`, the VMI stays, and with another finalizer, the VM."""
    vm, own_vmi = situation.vm, situation.own_vmi
    orphans = ORPHAN in (vm.metadata.finalizers or ())
    if (own_vmi is None or orphans) and vm.has_finalizer:
        return Step(write=finalizer_patch(vm, finalizer=False))
    if orphans:
        return Step()
    if own_vmi is None:
        return _with_status(situation, Pass()) or Step()
    stops = not own_vmi.is_terminating
    if situation.settings.detail == "short" and not stops and _is_releasable(own_vmi):
        return Step(effects=(_release(own_vmi),))
    done = Pass(stops=stops, generation=_generation_in(own_vmi))
    return _with_status(situation, done, (_stop(own_vmi),) if stops else ()) or Step()


def _generation_bump(vm: SimulatedVM, own_vmi: SimulatedVMI | None, related: RelatedObjects) -> Change | None:
    """Return the patch that notes the VM's generation in a VMI with the same template, or None."""
    if own_vmi is None or annotations_of(own_vmi.metadata).get(GENERATION) == str(vm.generation):
        return None
    revision = related.revisions.get(own_vmi.status.virtual_machine_revision_name or "")
    if revision is None:
        return None
    current = msgspec.json.decode(vm.spec)
    if not is_same(spec_in(revision).get("template"), current.get("template"), VMI_TEMPLATE):
        return None
    return Change(VMIS, vm.metadata.name, vmi_patch(own_vmi, annotations={GENERATION: str(vm.generation)}))


def _generation_in(own_vmi: SimulatedVMI) -> int | None:
    text = annotations_of(own_vmi.metadata).get(GENERATION, "")
    return int(text) if text.isdecimal() else None


def _update(vm: SimulatedVM, own_vmi: SimulatedVMI | None, related: RelatedObjects) -> Update | None:
    """Return the effect of a changed VM spec on the VMI. Return None if the spec at the VM's start is not known."""
    if own_vmi is None:
        return None
    started = start_revision(vm, related.revisions)
    if started is None:
        return None
    if started.revision == vm.generation:
        return Update()
    return update_for(spec_in(started), msgspec.json.decode(vm.spec), own_vmi)


def _adopt(vm: SimulatedVM, related: RelatedObjects) -> Iterator[Effect]:
    """Yield the patches that make the VM the controller of its VMI and DataVolumes if these have none and stay."""
    if related.vmi is not None and can_be_adopted(related.vmi.metadata):
        yield adoption(VMIS, related.vmi.metadata, VMS, vm.metadata, checked=True)
    for name in vm.data_volume_templates:
        volume = related.volumes.get(name)
        if volume is not None and can_be_adopted(volume.metadata):
            yield adoption(DATA_VOLUMES, volume.metadata, VMS, vm.metadata, checked=True)


def _missing_data_volumes(vm: SimulatedVM, related: RelatedObjects, settings: SimulationSettings) -> Iterator[Effect]:
    if not related.serves_data_volumes:
        return
    failing = {BEHAVIOR: "fail"} if settings.behavior == "datavolume-error" else {}
    for name, template in vm.data_volume_templates.items():
        if name not in related.volumes and not is_handed_over(related.claims.get(name), vm.metadata):
            yield create(DATA_VOLUMES, name, vm, template, {**failing, **template.annotations})


def _must_stop(vm: SimulatedVM, own_vmi: SimulatedVMI) -> bool:
    match vm.strategy:
        case "Halted":
            return True
        case "Always" | "RerunOnFailure":
            return own_vmi.is_final or asks_for(vm, STOP, own_vmi.metadata.uid)
        case "Manual":
            return asks_for(vm, STOP, own_vmi.metadata.uid)
        case _:
            return False


def _must_start(vm: SimulatedVM, now: datetime) -> bool:
    match vm.strategy:
        case "Always":
            return _backoff_s(vm, now) is None
        case "RerunOnFailure":
            return must_rerun(vm) and _backoff_s(vm, now) is None
        case "Manual":
            return asks_for(vm, START)
        case "Once":
            return True
        case _:
            return False


def _provisioned(vm: SimulatedVM, related: RelatedObjects) -> bool:
    """Return True if the VM's DataVolumes are ready. A DataVolume also counts as ready after CDI has deleted it."""
    names = [
        name
        for name in vm.data_volume_templates
        if name in related.volumes or not is_handed_over(related.claims.get(name), vm.metadata)
    ]
    return all(name in related.volumes and phase_of_volume(related.volumes[name]) in PROVISIONED for name in names)


def _backoff_s(vm: SimulatedVM, now: datetime) -> float | None:
    failure = vm.status.start_failure
    if failure is None or failure.retry_after_timestamp is None:
        return None
    left_s = (failure.retry_after_timestamp - now).total_seconds()
    return left_s if left_s > 0 else None


def _stop(own_vmi: SimulatedVMI) -> Delete:
    return Delete(VMIS, own_vmi.metadata.name, own_vmi.metadata.uid)
