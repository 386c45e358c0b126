"""The plan of a reconciliation of a flock: it creates VMIs for missing numbers, and deletes VMIs with other numbers."""

import msgspec

from controller.apimachinery.owner_references import controller_reference
from controller.kubevirt.resources import VMIS
from controller.kubevirt.vmi_types import TemplateMeta, VMITemplate
from controller.kubevirt.vmis import is_deleting
from controller.runtime.actions import Create, Delete, Plan, Stage, waiting
from informers.meta import ObjectKey
from tests.examples.flock.snapshot import Snapshot


def plan(snapshot: Snapshot) -> Plan:
    owner = snapshot.owner.metadata
    if owner.deletion_timestamp is not None:
        return waiting("being deleted")
    if snapshot.owner.spec.paused:
        return waiting("paused")
    if not snapshot.settled:
        return waiting("the cache does not show all of our own writes yet")
    replicas = snapshot.owner.spec.replicas
    names = [f"{owner.name}-{number}" for number in range(1 if replicas is None else replicas)]
    there = {vmi.metadata.name for vmi in snapshot.members}
    creates = tuple(_create(snapshot, name) for name in names if name not in there)
    deletes = tuple(
        Delete(resource=VMIS, key=vmi.metadata.key, uid=vmi.metadata.uid, why="its number is too high")
        for vmi in snapshot.members
        if vmi.metadata.name not in names and not is_deleting(vmi)
    )
    actions = (*creates, *deletes)
    return Plan(stages=(Stage(actions),) if actions else ())


def _create(snapshot: Snapshot, name: str) -> Create:
    owner, template = snapshot.owner.metadata, snapshot.owner.spec.template or VMITemplate()
    metadata = {
        "name": name,
        "namespace": owner.namespace,
        "labels": (template.metadata or TemplateMeta()).labels or {},
        "ownerReferences": (controller_reference(snapshot.flocks, owner),),
    }
    body = {"apiVersion": VMIS.api_version, "kind": VMIS.kind, "metadata": metadata, "spec": template.spec}
    return Create(
        resource=VMIS,
        key=ObjectKey(owner.namespace, name),
        body=msgspec.json.encode(body),
        owner_uid=owner.uid,
        why="its number is missing",
    )
