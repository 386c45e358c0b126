"""The VM that takes the place of a deleted VM."""

from __future__ import annotations

from controller.apimachinery.owner_references import controller_reference
from controller.kubevirt.annotations import POOL_FINALIZER
from controller.kubevirt.resources import VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.pool.members.revisions import Revisions
from controller.pool.members.snapshot import Snapshot
from controller.pool.rollout.limits import partition_of, template_below
from controller.pool.spec.indexing import encode_vm
from controller.pool.spec.intent import Intent
from controller.pool.spec.template import Template


def body_of(snapshot: Snapshot, intent: Intent, ordinal: int, revision: str, template: Template) -> bytes:
    """Return the request body that creates the VM of this ordinal."""
    owner = snapshot.owner.metadata
    # If the pool keeps no disks, nothing has to be done after a VM's deletion. One DELETE then removes the VM.
    finalizers = (POOL_FINALIZER,) if intent.scale_in.preserve else ()
    reference = controller_reference(snapshot.pools, owner)
    return encode_vm(template, ordinal, revision, resource=VMS, pool=owner, owner=reference, finalizers=finalizers)


def successor_of(snapshot: Snapshot, intent: Intent, revisions: Revisions, vm: VirtualMachine) -> bytes:
    """Return the body of the VM that takes the place of this VM after its deletion. The VM must have an ordinal."""
    ordinal = snapshot.ordinal_of(vm) or 0
    partition = partition_of(snapshot)
    newest = revisions.current, revisions.template
    chosen = template_below(snapshot, revisions, partition) if ordinal < partition else newest
    return body_of(snapshot, intent, ordinal, *chosen)
