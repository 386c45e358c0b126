"""The traits of the VMIs of a set. VMIs with equal traits are in one group of `Members`.

The traits are a VMI without what differs from VMI to VMI, such as its name, UID and node. Only terminating, and active
unready VMIs have times, in whole seconds. So ready VMIs of all ages have one group, and the VMIs of a burst few. A VMI
that replaces an early failure is alone in its group, because its history counts (R4a).
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from controller.apimachinery.conditions import Condition, with_timezone
from controller.apimachinery.label_selectors import Selector
from controller.kubevirt.annotations import EARLY_FAILURES
from controller.kubevirt.problems import BOOT_SKEW, is_booting
from controller.kubevirt.vmi_types import READY, MigrationState, PhaseTransition, VirtualMachineInstance, VMIStatus
from controller.kubevirt.vmis import entered, is_migrating, is_ready, is_running, is_spent, unready_since
from controller.replicas.catalogue import Place
from controller.replicas.wrong_annotations import Wrong, wrong_on
from controller.runtime.members.groups import SOME_MESSAGE, SOME_NODE, Members, grouped, like, shared_meta
from informers.meta import annotations_of, labels_of

VMIs = Members[VirtualMachineInstance]

NODE_LABELS: Final = frozenset({"kubevirt.io/nodeName", "kubevirt.io/migrationTargetNodeName"})
"""Labels that KubeVirt sets on a VMI. They differ from node to node, so they are no traits."""

_MIGRATES: Final = MigrationState()
_UNTIMED: Final = (None, None, None)


def erase(vmi: VirtualMachineInstance) -> VirtualMachineInstance | None:
    """Return the VMI without what is no trait, or None if it is alone in its group."""
    meta, status = vmi.metadata, vmi.status
    if replaces_failure(vmi):
        return None
    labels = {name: text for name, text in labels_of(meta).items() if name not in NODE_LABELS}
    is_waiting = meta.deletion_timestamp is None and not is_ready(vmi) and not is_spent(vmi)
    created, running, unready = _times_of(vmi) if is_waiting else _UNTIMED
    shared = shared_meta(
        labels, meta.annotations, deletion_timestamp=meta.deletion_timestamp, creation_timestamp=created
    )
    erased = status and _erase_status(vmi, status, running, unready)
    return VirtualMachineInstance(shared, erased, vmi.undecodable)


def _erase_status(
    vmi: VirtualMachineInstance, status: VMIStatus, running: datetime | None, unready: datetime | None
) -> VMIStatus:
    """Return the status without a node, without texts, and with these times only."""
    transitions = (PhaseTransition("Running", running),) if running is not None else ()
    return like(
        status,
        node_name=SOME_NODE if status.node_name else None,
        conditions=tuple([_erase_condition(each, unready) for each in status.conditions or ()]),
        migration_state=_MIGRATES if is_migrating(vmi) else None,
        phase_transition_timestamps=None if status.phase_transition_timestamps is None else transitions,
    )


def _erase_condition(condition: Condition, unready: datetime | None) -> Condition:
    return Condition(
        type=condition.type,
        status=condition.status,
        reason=condition.reason,
        message=SOME_MESSAGE if condition.message else None,
        last_transition_time=unready if condition.type == READY and condition.last_transition_time else None,
    )


def _times_of(vmi: VirtualMachineInstance) -> tuple[datetime | None, datetime | None, datetime | None]:
    """Return when an active VMI that is not ready was created, started and became unready, or None for no trait.

    During the start, KubeVirt changes the time of `Ready` with each new reason, so it counts only after the start. VMIs
    of many ages can lose their readiness in the same second. So then the first two times only tell a VMI that boots
    from one that was ready.
    """
    status, unready = vmi.status, unready_since(vmi)
    created, started = with_timezone(vmi.metadata.creation_timestamp), entered(vmi, "Running")
    is_timed = status is not None and status.phase_transition_timestamps is not None
    has_begun = started is not None or not is_timed
    if unready is None or not (has_begun or is_running(vmi)):
        return created, None, None
    began = unready if is_booting(vmi, unready) else unready - BOOT_SKEW - timedelta.resolution
    has_node = status is not None and bool(status.node_name)
    is_old = has_begun and has_node and created is not None and created < began
    return began if is_old else created, None if started is None else began, unready


def group_vmis(vmis: Iterable[VirtualMachineInstance]) -> VMIs:
    return grouped(vmis, erase)


def split_by_selector(vmis: VMIs, selector: Selector) -> tuple[VMIs, VMIs]:
    """Return the VMIs whose labels match the selector, and the other VMIs. Terminating VMIs count as matching."""

    def stays(vmi: VirtualMachineInstance) -> bool:
        return vmi.metadata.deletion_timestamp is not None or selector.matches(labels_of(vmi.metadata))

    if NODE_LABELS.isdisjoint((*selector.needed, *selector.refused)):
        return vmis.where(stays), vmis.where(lambda vmi: not stays(vmi))
    return group_vmis(filter(stays, vmis)), group_vmis(vmi for vmi in vmis if not stays(vmi))


def replaces_failure(vmi: VirtualMachineInstance) -> bool:
    return EARLY_FAILURES in annotations_of(vmi.metadata)


def wrong_on_vmi(vmi: VirtualMachineInstance) -> tuple[Wrong, ...]:
    return wrong_on(vmi.metadata, Place.VMI)
