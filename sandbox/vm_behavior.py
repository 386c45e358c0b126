"""What KubeVirt's VM controller does: it makes storage, starts and stops VMIs by the run strategy, and tells. Pure.

- Always: there is a VMI; one that ended or was deleted is started anew.
- RerunOnFailure: started once, and anew after each failure; not after a success, and not after a deletion.
- Once: started once.
- Manual: started and stopped by `status.stateChangeRequests` alone, as `virtctl` makes them.
- Halted: there is none.

A VM is started when its DataVolumes are there, and, after failed starts in a row, not before its backoff is over. What
a VMI ended with is in the status before that VMI is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from sandbox.datavolumes import DATA_VOLUMES, phase_of_volume
from sandbox.ownership import adoption, controlled_by, is_controlled_by, is_free
from sandbox.step import Change, Create, Delete, Effect, Step
from sandbox.vm_status import (
    PROVISIONED,
    START,
    STOP,
    Around,
    asks_for,
    is_final,
    is_going,
    next_status,
)
from sandbox.vmis import VMIS, SimulatedVMI
from sandbox.vms import (
    VMS,
    SimulatedVM,
    annotations_of_template,
    change_hold,
    change_status,
    data_volume_templates_of,
    holds_on,
    manifest,
    start,
    status_of,
    strategy_of,
    template_of,
)
from sandbox.wishes import BEHAVIOR, read_wishes

ORPHAN: Final = "orphan"
"""The finalizer of a deletion that is to leave the VMI and the disks alone."""


def next_step(vm: SimulatedVM, around: Around, now: datetime) -> Step:
    """What to do about this VM next: act, or else say how it stands, or else wait."""
    vmi = around.vmi
    own = vmi if vmi is not None and is_controlled_by(vmi.metadata, vm.metadata) else None
    leaving = vm.metadata.deletion_timestamp is not None
    if not leaving and not holds_on(vm):
        return Step(write=change_hold(vm, hold=True))
    status = next_status(vm, own, around, now)
    telling = Step(write=change_status(vm, status)) if status != status_of(vm) else None
    if leaving:
        return _leave(vm, own) or telling or Step()
    if telling is not None and own is not None and is_final(own):
        return telling
    effects = (*_adopt(vm, around), *_storage(vm, around)) or _run(vm, own, around, now)
    if effects:
        return Step(effects=effects)
    return telling or Step(after_s=_backoff_s(vm, now) if own is None else None)


def _leave(vm: SimulatedVM, own: SimulatedVMI | None) -> Step | None:
    """A VM that is deleted is let go when its VMI has gone, or at once if it leaves that behind."""
    if own is None or ORPHAN in (vm.metadata.finalizers or ()):
        return Step(write=change_hold(vm, hold=False)) if holds_on(vm) else None
    return None if is_going(own) else Step(effects=(_stop(own),))


def _adopt(vm: SimulatedVM, around: Around) -> Iterator[Effect]:
    """What has a name that belongs to this VM, and no controller, becomes its own."""
    controller = controlled_by(VMS, vm.metadata)
    if around.vmi is not None and is_free(around.vmi.metadata):
        yield Change(VMIS, vm.metadata.name, adoption(around.vmi.metadata, controller))
    for name in data_volume_templates_of(vm):
        volume = around.volumes.get(name)
        if volume is not None and is_free(volume.metadata):
            yield Change(DATA_VOLUMES, name, adoption(volume.metadata, controller))


def _storage(vm: SimulatedVM, around: Around) -> Iterator[Effect]:
    """The DataVolumes that are missing."""
    if not around.serves_data_volumes:
        return
    wishes = read_wishes(annotations_of_template(template_of(vm)))
    failing = {BEHAVIOR: "fail"} if wishes.behavior == "datavolume-error" else {}
    for name, template in data_volume_templates_of(vm).items():
        if name not in around.volumes:
            annotations = {**failing, **annotations_of_template(template)}
            yield Create(
                DATA_VOLUMES, manifest(DATA_VOLUMES, name, template, annotations, controlled_by(VMS, vm.metadata))
            )


def _run(vm: SimulatedVM, own: SimulatedVMI | None, around: Around, now: datetime) -> tuple[Effect, ...]:
    """Start or stop the VMI, as the run strategy says."""
    strategy = strategy_of(vm)
    if strategy != "Halted" and not _provisioned(vm, around):
        return ()
    if own is not None:
        return (_stop(own),) if not is_going(own) and _must_stop(vm, own) else ()
    if around.vmi is None and _must_start(vm) and _backoff_s(vm, now) is None:
        return (start(vm),)
    return ()


def _must_stop(vm: SimulatedVM, own: SimulatedVMI) -> bool:
    match strategy_of(vm):
        case "Halted":
            return True
        case "Always" | "RerunOnFailure":
            return is_final(own) or asks_for(vm, STOP, own.metadata.uid)
        case "Manual":
            return asks_for(vm, STOP, own.metadata.uid)
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


def _provisioned(vm: SimulatedVM, around: Around) -> bool:
    volumes = [around.volumes.get(name) for name in data_volume_templates_of(vm)]
    return all(volume is not None and phase_of_volume(volume) in PROVISIONED for volume in volumes)


def _backoff_s(vm: SimulatedVM, now: datetime) -> float | None:
    """How long it must not be started; None when it may be."""
    failure = status_of(vm).start_failure
    if failure is None or failure.retry_after_timestamp is None:
        return None
    left_s = (failure.retry_after_timestamp - now).total_seconds()
    return left_s if left_s > 0 else None


def _stop(own: SimulatedVMI) -> Delete:
    return Delete(VMIS, own.metadata.name, own.metadata.uid)
