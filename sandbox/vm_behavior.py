"""This module simulates KubeVirt's VM controller.

The VM controller creates storage, starts and stops VMIs, and writes VM statuses.

All functions of this module are pure. The run strategy of a VM decides when a VMI is started:

- Always: a VMI is started whenever the VM has no VMI. A VMI that has ended is replaced by a new VMI.
- RerunOnFailure: a VMI is started once. A new VMI is started after each failure, but not after a success or a deletion.
- Once: a VMI is started whenever the VM has no VMI. A VMI that has ended stays.
- Manual: a VMI is started and stopped only by the requests that `virtctl` writes to `status.stateChangeRequests`.
- Halted: no VMI is started, and an existing VMI is deleted.

A VM is started only when its DataVolumes are ready. After a failed start, the next start waits until the backoff is
over.

If a step creates or deletes the VMI and writes a VM status, this status describes the VMI before the step. An ended VMI
keeps the VM controller's finalizer until its result is in the VM's status.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

import msgspec

from controller.kubevirt.normal_form import VMI_TEMPLATE, is_same
from informers.meta import annotations_of
from sandbox.datavolumes import DATA_VOLUMES, is_handed_over, phase_of_volume
from sandbox.live_update import Update, update_for
from sandbox.ownership import adoption_patch, can_be_adopted, controlled_by, is_controlled_by
from sandbox.settings import BEHAVIOR, DEFAULT, SimulationSettings, read_settings
from sandbox.step import Change, Create, Delete, Effect, Step
from sandbox.vm_revisions import record_start, spec_in, start_revision
from sandbox.vm_status import (
    PROVISIONED,
    START,
    STOP,
    Pass,
    RelatedObjects,
    asks_for,
    lacks_data_volumes,
    must_rerun,
    next_status,
)
from sandbox.vmi_status import finalizers_patch, generation_patch
from sandbox.vmis import (
    CONTROLLER_FINALIZER,
    VMIS,
    SimulatedVMI,
    finalizers_of,
    is_final,
    is_observed,
    is_terminating,
)
from sandbox.vmis import has_finalizer as vmi_has_finalizer
from sandbox.vms import (
    GENERATION,
    VMS,
    SimulatedVM,
    annotations_of_template,
    data_volume_templates_of,
    finalizer_patch,
    generation_of,
    has_finalizer,
    manifest,
    observed_patch,
    start,
    status_of,
    status_patch,
    strategy_of,
    template_of,
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
    """Return the next step for this VM: change other objects, or write the status, or both, or wait."""
    vmi = related.vmi
    own_vmi = vmi if vmi is not None and is_controlled_by(vmi.metadata, vm.metadata) else None
    settings = read_settings(annotations_of_template(template_of(vm)), defaults=defaults)
    if settings.detail == "full" and not is_observed(vm.metadata):
        return Step(write=observed_patch(vm))
    if vm.metadata.deletion_timestamp is not None:
        return _delete(vm, own_vmi, related, now, settings)
    if not has_finalizer(vm):
        return Step(write=finalizer_patch(vm, finalizer=True))
    storage = (*_adopt(vm, related), *_missing_data_volumes(vm, related, settings))
    if storage:
        return Step(effects=storage)
    return _run(vm, own_vmi, related, now, settings)


def _run(
    vm: SimulatedVM,
    own_vmi: SimulatedVMI | None,
    related: RelatedObjects,
    now: datetime,
    settings: SimulationSettings,
) -> Step:
    """Return the next step for a VM that is not being deleted.

    The step contains the effects of the run strategy and of a changed spec, and the new status.
    """
    bumped = _generation_bump(vm, own_vmi, related)
    effects: list[Effect] = [bumped] if bumped is not None else []
    is_provisioned = strategy_of(vm) == "Halted" or _provisioned(vm, related)
    stops = own_vmi is not None and not is_terminating(own_vmi) and is_provisioned and _must_stop(vm, own_vmi)
    starts = related.vmi is None and is_provisioned and _must_start(vm, now)
    if own_vmi is not None and stops:
        effects.append(_stop(own_vmi))
    if starts:
        effects += (*record_start(vm, related.revisions), start(vm, now))
    update = _update(vm, own_vmi, related) if is_provisioned else None
    if update is not None and update.patch is not None and not stops:
        effects.append(Change(VMIS, vm.metadata.name, update.patch))
    done = Pass(
        starts=starts,
        stops=stops,
        generation=None if own_vmi is None else _generation_in(own_vmi) if bumped is None else generation_of(vm),
        restart_message=None if update is None else update.restart_message,
        failure=NO_DATA_VOLUMES if lacks_data_volumes(vm, related) else update.failure if update is not None else None,
        time_scale=settings.time_scale,
    )
    if starts and settings.detail == "short":
        return Step(effects=tuple(effects))
    wait_s = _backoff_s(vm, now) if own_vmi is None else None
    return _with_status(vm, own_vmi, related, now, done, effects=tuple(effects)) or Step(after_s=wait_s)


def _with_status(
    vm: SimulatedVM,
    own_vmi: SimulatedVMI | None,
    related: RelatedObjects,
    now: datetime,
    done: Pass,
    *,
    effects: tuple[Effect, ...],
) -> Step | None:
    """Return the step with these effects and the new status, or None if there is nothing to do.

    If the status already contains the result of an ended VMI, the step removes the VMI's finalizer.
    """
    status = next_status(vm, own_vmi, related, now, done)
    if status != status_of(vm):
        return Step(effects=effects, write=status_patch(vm, status))
    if not effects and own_vmi is not None and _is_releasable(own_vmi):
        effects = (_release(own_vmi),)
    return Step(effects=effects) if effects else None


def _is_releasable(own_vmi: SimulatedVMI) -> bool:
    return is_final(own_vmi) and vmi_has_finalizer(own_vmi, CONTROLLER_FINALIZER)


def _release(own_vmi: SimulatedVMI) -> Change:
    """Return the patch that removes the VM controller's finalizer from the VMI."""
    left = tuple(name for name in finalizers_of(own_vmi) if name != CONTROLLER_FINALIZER)
    return Change(VMIS, own_vmi.metadata.name, finalizers_patch(own_vmi, left))


def _delete(
    vm: SimulatedVM,
    own_vmi: SimulatedVMI | None,
    related: RelatedObjects,
    now: datetime,
    settings: SimulationSettings,
) -> Step:
    """Return the next step for a VM that is being deleted.

    KubeVirt's finalizer of the VM is removed when the VMI no longer exists. If the VM has the finalizer `orphan`,
    KubeVirt's finalizer is removed at once and the VMI is kept. If the VM has another finalizer too, the VM stays. Then
    the VM's status shows that the VMI is gone.
    """
    orphans = ORPHAN in (vm.metadata.finalizers or ())
    if (own_vmi is None or orphans) and has_finalizer(vm):
        return Step(write=finalizer_patch(vm, finalizer=False))
    if orphans:
        return Step()
    if own_vmi is None:
        return _with_status(vm, None, related, now, Pass(time_scale=settings.time_scale), effects=()) or Step()
    stops = not is_terminating(own_vmi)
    if settings.detail == "short" and not stops and _is_releasable(own_vmi):
        return Step(effects=(_release(own_vmi),))
    done = Pass(stops=stops, generation=_generation_in(own_vmi), time_scale=settings.time_scale)
    effects = (_stop(own_vmi),) if stops else ()
    return _with_status(vm, own_vmi, related, now, done, effects=effects) or Step()


def _generation_bump(vm: SimulatedVM, own_vmi: SimulatedVMI | None, related: RelatedObjects) -> Change | None:
    """Return the patch that writes the VM's generation to an annotation of the VMI, or None.

    The annotation says that the VMI runs the template of this generation. The result is None if the annotation is up to
    date, or if the template has changed since the start of the VMI.
    """
    if own_vmi is None or annotations_of(own_vmi.metadata).get(GENERATION) == str(generation_of(vm)):
        return None
    name = own_vmi.status.virtual_machine_revision_name if own_vmi.status is not None else None
    revision = related.revisions.get(name or "")
    if revision is None:
        return None
    current = msgspec.json.decode(vm.spec)
    if not is_same(spec_in(revision).get("template"), current.get("template"), VMI_TEMPLATE):
        return None
    return Change(VMIS, vm.metadata.name, generation_patch(own_vmi, GENERATION, generation_of(vm)))


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
    if started.revision == generation_of(vm):
        return Update()
    return update_for(spec_in(started), msgspec.json.decode(vm.spec), own_vmi)


def _adopt(vm: SimulatedVM, related: RelatedObjects) -> Iterator[Effect]:
    """Yield the patches that make the VM the controller of its VMI and of its DataVolumes.

    Terminating objects and objects with another controller are not patched.
    """
    controller = controlled_by(VMS, vm.metadata)
    if related.vmi is not None and can_be_adopted(related.vmi.metadata):
        yield Change(VMIS, vm.metadata.name, adoption_patch(related.vmi.metadata, controller), adopts=True)
    for name in data_volume_templates_of(vm):
        volume = related.volumes.get(name)
        if volume is not None and can_be_adopted(volume.metadata):
            yield Change(DATA_VOLUMES, name, adoption_patch(volume.metadata, controller), adopts=True)


def _missing_data_volumes(vm: SimulatedVM, related: RelatedObjects, settings: SimulationSettings) -> Iterator[Effect]:
    """Yield the creation of each missing DataVolume, or nothing if the CRD of DataVolumes is not installed."""
    if not related.serves_data_volumes:
        return
    failing = {BEHAVIOR: "fail"} if settings.behavior == "datavolume-error" else {}
    for name, template in data_volume_templates_of(vm).items():
        if name not in related.volumes and not is_handed_over(related.claims.get(name), vm.metadata):
            annotations = {**failing, **annotations_of_template(template)}
            yield Create(
                DATA_VOLUMES, manifest(DATA_VOLUMES, name, template, annotations, controlled_by(VMS, vm.metadata))
            )


def _must_stop(vm: SimulatedVM, own_vmi: SimulatedVMI) -> bool:
    match strategy_of(vm):
        case "Halted":
            return True
        case "Always" | "RerunOnFailure":
            return is_final(own_vmi) or asks_for(vm, STOP, own_vmi.metadata.uid)
        case "Manual":
            return asks_for(vm, STOP, own_vmi.metadata.uid)
        case _:
            return False


def _must_start(vm: SimulatedVM, now: datetime) -> bool:
    match strategy_of(vm):
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
        for name in data_volume_templates_of(vm)
        if name in related.volumes or not is_handed_over(related.claims.get(name), vm.metadata)
    ]
    return all(name in related.volumes and phase_of_volume(related.volumes[name]) in PROVISIONED for name in names)


def _backoff_s(vm: SimulatedVM, now: datetime) -> float | None:
    """Return the remaining seconds of the backoff, or None if the VM may be started now."""
    failure = status_of(vm).start_failure
    if failure is None or failure.retry_after_timestamp is None:
        return None
    left_s = (failure.retry_after_timestamp - now).total_seconds()
    return left_s if left_s > 0 else None


def _stop(own_vmi: SimulatedVMI) -> Delete:
    return Delete(VMIS, own_vmi.metadata.name, own_vmi.metadata.uid)
