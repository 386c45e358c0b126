"""Functions that read since when the members of a pool are not ready (P14, P15)."""

from __future__ import annotations

from datetime import datetime

from controller.apimachinery.conditions import with_timezone
from controller.kubevirt import vmis
from controller.kubevirt.vm_types import VirtualMachine
from controller.kubevirt.vms import is_deleting, is_meant_to_run, revision_of, unready_since
from controller.pool.snapshot import Snapshot


def down_since(snapshot: Snapshot, vm: VirtualMachine) -> datetime | None:
    """Return the time since which a VM that should run is not ready. The VM may have no VMI at all.

    The result is None if the VM is ready or terminating, or should not run.
    """
    vmi = snapshot.vmi_of(vm)
    if is_deleting(vm) or not is_meant_to_run(vm) or (vmi is not None and vmis.is_ready(vmi)):
        return None
    if vmi is not None:
        return vmis.unready_since(vmi) or snapshot.now
    # The VM may have been down before this template existed. Only the time since the
    # creation of the revision counts.
    created = [each.metadata.creation_timestamp for each in snapshot.revisions if each.metadata.name == revision_of(vm)]
    return max(filter(None, map(with_timezone, (*created, unready_since(vm)))), default=snapshot.now)
