"""This module simulates KubeVirt's VM controller, which creates storage, starts and stops VMIs, and writes VM statuses.

All functions of this module are pure. The run strategy of a VM decides when a VMI is started:

- Always: a VMI is started whenever the VM has no VMI. A VMI that has ended is replaced by a new VMI.
- RerunOnFailure: a VMI is started once. A new VMI is started after each failure, but not after a success or a deletion.
- Once: a VMI is started once.
- Manual: a VMI is started and stopped only by the requests that `virtctl` writes to `status.stateChangeRequests`.
- Halted: no VMI is started, and an existing VMI is deleted.

A VM is started only when its DataVolumes are ready. After failed starts, the VM is not started before the backoff is
over. The result of a VMI is written to the VM's status before the VMI is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from sandbox.datavolumes import DATA_VOLUMES, phase_of_volume
from sandbox.ownership import adoption_patch, can_be_adopted, controlled_by, is_controlled_by
from sandbox.settings import BEHAVIOR, read_settings
from sandbox.step import Change, Create, Delete, Effect, Step
from sandbox.vm_status import (
    PROVISIONED,
    START,
    STOP,
    RelatedObjects,
    asks_for,
    is_final,
    is_terminating,
    next_status,
)
from sandbox.vmis import VMIS, SimulatedVMI
from sandbox.vms import (
    VMS,
    SimulatedVM,
    annotations_of_template,
    data_volume_templates_of,
    finalizer_patch,
    has_finalizer,
    manifest,
    start,
    status_of,
    status_patch,
    strategy_of,
    template_of,
)

ORPHAN: Final = "orphan"
"""The finalizer that the API server adds if a VM is deleted but its VMI and its disks must be kept."""


def next_step(vm: SimulatedVM, related: RelatedObjects, now: datetime) -> Step:
    """Return the next step for this VM: change other objects, or write the status, or wait."""
    vmi = related.vmi
    own_vmi = vmi if vmi is not None and is_controlled_by(vmi.metadata, vm.metadata) else None
    is_deleted = vm.metadata.deletion_timestamp is not None
    if not is_deleted and not has_finalizer(vm):
        return Step(write=finalizer_patch(vm, finalizer=True))
    status = next_status(vm, own_vmi, related, now)
    status_step = Step(write=status_patch(vm, status)) if status != status_of(vm) else None
    if is_deleted:
        return _delete(vm, own_vmi) or status_step or Step()
    if status_step is not None and own_vmi is not None and is_final(own_vmi):
        return status_step
    effects = (*_adopt(vm, related), *_missing_data_volumes(vm, related)) or _run(vm, own_vmi, related, now)
    if effects:
        return Step(effects=effects)
    return status_step or Step(after_s=_backoff_s(vm, now) if own_vmi is None else None)


def _delete(vm: SimulatedVM, own_vmi: SimulatedVMI | None) -> Step | None:
    """Return the next step for a VM that is being deleted, or None if there is nothing to do.

    KubeVirt's finalizer of the VM is removed when the VMI no longer exists. If the VM has the finalizer `orphan`,
    KubeVirt's finalizer is removed at once and the VMI is kept.
    """
    if own_vmi is None or ORPHAN in (vm.metadata.finalizers or ()):
        return Step(write=finalizer_patch(vm, finalizer=False)) if has_finalizer(vm) else None
    return None if is_terminating(own_vmi) else Step(effects=(_stop(own_vmi),))


def _adopt(vm: SimulatedVM, related: RelatedObjects) -> Iterator[Effect]:
    """Yield the patches that make the VM the controller of its VMI and of its DataVolumes.

    Only objects that have no controller and are not being deleted are patched.
    """
    controller = controlled_by(VMS, vm.metadata)
    if related.vmi is not None and can_be_adopted(related.vmi.metadata):
        yield Change(VMIS, vm.metadata.name, adoption_patch(related.vmi.metadata, controller))
    for name in data_volume_templates_of(vm):
        volume = related.volumes.get(name)
        if volume is not None and can_be_adopted(volume.metadata):
            yield Change(DATA_VOLUMES, name, adoption_patch(volume.metadata, controller))


def _missing_data_volumes(vm: SimulatedVM, related: RelatedObjects) -> Iterator[Effect]:
    """Yield the creation of each missing DataVolume, or nothing if the definition of DataVolumes is not installed."""
    if not related.serves_data_volumes:
        return
    settings = read_settings(annotations_of_template(template_of(vm)))
    failing = {BEHAVIOR: "fail"} if settings.behavior == "datavolume-error" else {}
    for name, template in data_volume_templates_of(vm).items():
        if name not in related.volumes:
            annotations = {**failing, **annotations_of_template(template)}
            yield Create(
                DATA_VOLUMES, manifest(DATA_VOLUMES, name, template, annotations, controlled_by(VMS, vm.metadata))
            )


def _run(vm: SimulatedVM, own_vmi: SimulatedVMI | None, related: RelatedObjects, now: datetime) -> tuple[Effect, ...]:
    """Return the creation or deletion of the VMI that the run strategy requires now, or () if nothing must change."""
    strategy = strategy_of(vm)
    if strategy != "Halted" and not _provisioned(vm, related):
        return ()
    if own_vmi is not None:
        return (_stop(own_vmi),) if not is_terminating(own_vmi) and _must_stop(vm, own_vmi) else ()
    if related.vmi is None and _must_start(vm) and _backoff_s(vm, now) is None:
        return (start(vm),)
    return ()


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


def _must_start(vm: SimulatedVM) -> bool:
    strategy = strategy_of(vm)
    match strategy:
        case "Always":
            return True
        case "RerunOnFailure":
            return asks_for(vm, START) or status_of(vm).run_strategy != strategy
        case "Manual":
            return asks_for(vm, START)
        case "Once":
            return status_of(vm).run_strategy != strategy
        case _:
            return False


def _provisioned(vm: SimulatedVM, related: RelatedObjects) -> bool:
    volumes = [related.volumes.get(name) for name in data_volume_templates_of(vm)]
    return all(volume is not None and phase_of_volume(volume) in PROVISIONED for volume in volumes)


def _backoff_s(vm: SimulatedVM, now: datetime) -> float | None:
    """Return the seconds until the VM may be started, or None if the backoff allows the start now."""
    failure = status_of(vm).start_failure
    if failure is None or failure.retry_after_timestamp is None:
        return None
    left_s = (failure.retry_after_timestamp - now).total_seconds()
    return left_s if left_s > 0 else None


def _stop(own_vmi: SimulatedVMI) -> Delete:
    return Delete(VMIS, own_vmi.metadata.name, own_vmi.metadata.uid)
