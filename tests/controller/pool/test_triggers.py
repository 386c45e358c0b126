"""P19: the pools that a change triggers, and the delay."""

import pytest
from msgspec import Raw
from msgspec.structs import replace

from controller.apimachinery.conditions import Condition
from controller.kubevirt import annotations as names
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.pool.triggers import pools_of_revision, pools_of_vm, pools_of_vmi
from controller.replicas.triggers import wakes_of_owner
from controller.runtime.triggers import COUNT_DELAY_S
from informers.store import Added, Removed, Store, Updated
from tests.pool_builders import ANOTHER_CONTROLLER, pool, revision, vm, vm_spec, vmi

OWNER = pool()
RIVAL = pool("rival", uid="uid-of-the-rival")
NOW_S, SOON, NEVER = {"web": 0.0}, {"web": COUNT_DELAY_S}, {}
FAILURE = {"type": "ReplicaFailure", "status": "True", "message": "3 of 3"}
PAUSED = {"type": "ReplicaPaused"}


def by_name(triggers) -> dict[str, float]:
    """The pools that a change triggers, with their delays."""
    triggers = list(triggers)
    assert len({key for key, _ in triggers}) == len(triggers)
    assert all(key.namespace == "default" for key, _ in triggers)
    return {key.name: delay for key, delay in triggers}


def member(**changes):
    return vm(**{"owner": OWNER, "finalizers": (names.POOL_FINALIZER,), **changes})


def stray(**changes):
    """A former member of the pool that still has the pool finalizer."""
    return vm(**changes)


VM_CHANGES = {
    "a member appears": (Added(member()), NOW_S),
    "a member vanishes": (Removed(member()), NOW_S),
    "a stray appears": (Added(stray()), NOW_S),
    "a stray is deleted": (Updated(stray(), stray(deleting=True)), NOW_S),
    "a member of another pool with a name of this pool": (Added(member(owner=RIVAL)), {"rival": 0.0, "web": 0.0}),
    "a member of another pool without the finalizer appears": (Added(vm(owner=RIVAL)), {"rival": 0.0}),
    "a VM of another controller appears": (Added(vm(owners=(ANOTHER_CONTROLLER,), finalizers=())), NEVER),
    "a VM without a controller appears": (Added(vm(finalizers=())), NEVER),
    "a VM with the finalizer and a foreign name appears": (Added(vm("web-01")), NEVER),
    "it is deleted": (Updated(member(), member(deleting=True)), NOW_S),
    "its deletion changes to foreground": (Updated(member(deleting=True), member(foreground=True)), NOW_S),
    "it was recreated between two lists": (Updated(member(), member(uid="another")), NOW_S),
    "it was detached": (Updated(member(), stray()), NOW_S),
    "it was detached and lost the finalizer": (Updated(member(), vm(finalizers=())), NOW_S),
    "it moved to another pool": (Updated(member(), vm(owner=RIVAL)), {"web": 0.0, "rival": 0.0}),
    "its finalizer is removed": (Updated(member(), member(finalizers=())), NOW_S),
    "its labels change": (Updated(member(), member(labels={"app": "debug"})), NOW_S),
    "its revision changes": (Updated(member(), member(revision="web-2")), NOW_S),
    "it is marked for removal": (Updated(member(), member(annotations={names.REMOVE: "true"})), NOW_S),
    "its protection is removed": (Updated(member(annotations={names.PROTECT: "true"}), member()), NOW_S),
    "its cost changes": (Updated(member(), member(annotations={names.DELETION_COST: "5"})), NOW_S),
    "its user stops it": (Updated(member(), member(spec=vm_spec(run_strategy="Halted"))), NOW_S),
    "its node selector changes": (Updated(member(), member(spec=vm_spec(node_selector={"a": "b"}))), NOW_S),
    "it fails to start once more": (Updated(member(failures=1), member(failures=2)), NOW_S),
    "a snapshot of it begins": (Updated(member(), member(snapshot="monday")), NOW_S),
    "its status shows that it cannot start": (Updated(member(), member(printable="ErrorUnschedulable")), NOW_S),
    "it becomes ready": (Updated(member(ready=False), member()), SOON),
    "it becomes not ready": (Updated(member(), member(ready=False)), SOON),
    "Ready appears and is false": (Updated(member(ready=None), member(ready=False)), SOON),
    "it is not ready since another time": (Updated(*(member(ready=False, ready_for_s=s) for s in (5, 9))), SOON),
    "it is ready since another time": (Updated(member(ready_for_s=5), member(ready_for_s=9)), NEVER),
    "another annotation changes": (Updated(member(), member(annotations={"note": "hi"})), NEVER),
    "only its version changes": (Updated(member(), member(version="2")), NEVER),
    "a VM without a controller is deleted": (Updated(vm(finalizers=()), vm(finalizers=(), deleting=True)), NEVER),
}


@pytest.mark.parametrize(("change", "expected"), VM_CHANGES.values(), ids=VM_CHANGES)
def test_p19_which_pools_a_vm_triggers(change, expected):
    assert by_name(pools_of_vm(change)) == expected


VM = member()
SERVES, HIDDEN = ({"app": "web", names.IN_SERVICE: each} for each in ("true", "false"))


def with_condition(type_: str, status: str) -> VirtualMachineInstance:
    return vmi(VM, conditions=[Condition(type=type_, status=status)])


def obstructed(message: str) -> VirtualMachineInstance:
    """The VMI of the VM, which cannot start."""
    condition = Condition(type="Synchronized", status="False", reason="ImagePullBackOff", message=message)
    return vmi(VM, phase="Scheduling", ready=False, conditions=[condition])


VMI_CHANGES = {
    "it appears": (Added(vmi(VM)), NOW_S),
    "it vanishes": (Removed(vmi(VM)), NOW_S),
    "it becomes ready": (Updated(vmi(VM, ready=False), vmi(VM)), SOON),
    "it becomes not ready": (Updated(vmi(VM), vmi(VM, ready=False)), SOON),
    "it is ready since another time": (Updated(vmi(VM, ready_for_s=5), vmi(VM, ready_for_s=9)), SOON),
    "it is being deleted": (Updated(vmi(VM), vmi(VM, deleting=True)), SOON),
    "it finishes": (Updated(vmi(VM), vmi(VM, phase="Succeeded")), SOON),
    "it is lost": (Updated(vmi(VM), vmi(VM, phase="Unknown")), SOON),
    "its revision changes": (Updated(vmi(VM, revision="web-0"), vmi(VM)), SOON),
    "it was recreated between two lists": (Updated(vmi(VM), vmi(VM, uid="another")), SOON),
    "its owner changes": (Updated(vmi(VM, owners=()), vmi(VM)), SOON),
    "it starts": (Updated(vmi(VM, phase="Scheduled"), vmi(VM)), SOON),
    "it gets a node": (Updated(vmi(VM, node=None), vmi(VM)), NEVER),
    "its migration starts": (Updated(vmi(VM), vmi(VM, migrating=True)), SOON),
    "it will have to migrate": (Updated(vmi(VM), with_condition("MigrationRequired", "False")), SOON),
    "it has to migrate": (Updated(*(with_condition("MigrationRequired", each) for each in ("False", "True"))), SOON),
    "it cannot start": (Updated(vmi(VM, phase="Scheduling", ready=False), obstructed("try 1")), SOON),
    "it still cannot start": (Updated(obstructed("try 1"), obstructed("try 2")), NEVER),
    "it cannot migrate any more": (Updated(vmi(VM), with_condition("LiveMigratable", "False")), SOON),
    "its migration ends": (Updated(vmi(VM, migrating=True), vmi(VM)), SOON),
    "it leaves its Services": (Updated(vmi(VM, labels=SERVES), vmi(VM, labels=HIDDEN)), SOON),
    "its drain ends": (Updated(vmi(VM, annotations={names.DRAINING: "x"}), vmi(VM)), SOON),
    "an annotation changes": (Updated(vmi(VM), vmi(VM, annotations={"note": "hi"})), NEVER),
    "only its version changes": (Updated(vmi(VM), vmi(VM, version="2")), NEVER),
}


@pytest.mark.parametrize(("change", "expected"), VMI_CHANGES.values(), ids=VMI_CHANGES)
def test_p19_which_pools_a_vmi_triggers(change, expected):
    machines = Store()
    machines.apply(VM)
    assert by_name(pools_of_vmi(change, machines)) == expected


KEPT = revision(OWNER)
FOREIGN = revision(OWNER, owned=False)


def kept_with(**meta):
    return replace(KEPT, metadata=replace(KEPT.metadata, **meta))


REVISION_CHANGES = {
    "it appears": (Added(KEPT), NOW_S),
    "it vanishes": (Removed(KEPT), NOW_S),
    "it is being deleted": (Updated(KEPT, revision(OWNER, deleting=True)), NOW_S),
    "it gets another controller": (Updated(KEPT, FOREIGN), NOW_S),
    "the pool becomes its controller": (Updated(FOREIGN, KEPT), NOW_S),
    "it was recreated between two lists": (Updated(KEPT, kept_with(uid="another")), NOW_S),
    "its data changes": (Updated(KEPT, replace(KEPT, data=Raw(b"{}"))), NOW_S),
    "its number changes": (Updated(KEPT, replace(KEPT, revision=9)), NOW_S),
    "only its version changes": (Updated(KEPT, kept_with(resource_version="2")), NEVER),
    "a revision of another controller appears": (Added(FOREIGN), NEVER),
}


@pytest.mark.parametrize(("change", "expected"), REVISION_CHANGES.values(), ids=REVISION_CHANGES)
def test_p19_which_pools_a_revision_triggers(change, expected):
    assert by_name(pools_of_revision(change)) == expected


NUMBERS = ("replicas", "readyReplicas", "updatedReplicas", "observedGeneration")
STATUS = dict.fromkeys(NUMBERS, 1) | dict.fromkeys(
    ("labelSelector", "currentRevision", "updateRevision", "printableStatus"), "else"
)

POOL_CHANGES = {
    "it appears": (Added(OWNER), NOW_S),
    "it vanishes": (Removed(OWNER), NOW_S),
    "its spec changes": (Updated(OWNER, pool(replicas=9)), NOW_S),
    "its template changes": (Updated(OWNER, pool(spec=vm_spec(image="v2"))), NOW_S),
    "it is paused": (Updated(OWNER, pool(paused=True)), NOW_S),
    "its generation changes": (Updated(OWNER, pool(generation=2)), NOW_S),
    "it is deleted": (Updated(OWNER, pool(deleting=True)), NOW_S),
    "it loses the pool finalizer": (Updated(OWNER, pool(finalizers=())), NOW_S),
    "it was recreated between two lists": (Updated(OWNER, pool(uid="another")), NOW_S),
    **{
        f"{name} changes": (Updated(OWNER, pool(annotations={name: "1"})), NOW_S)
        for name in (
            names.PARTITION,
            names.MIN_READY,
            names.MAX_UNHEALTHY,
            names.PROGRESS_DEADLINE,
            names.MOST_DISRUPTIVE,
            names.RECREATED,
        )
    },
    "its healing records are removed": (Updated(pool(annotations={names.HEALED: "{}"}), OWNER), NOW_S),
    "another annotation changes": (Updated(OWNER, pool(annotations={"note": "hi"})), NEVER),
    "only its version changes": (Updated(OWNER, pool(version="2")), NEVER),
    "its counts are written": (Updated(OWNER, pool(status={"replicas": 3})), SOON),
    "its status is removed": (Updated(pool(status={"replicas": 3, "conditions": [FAILURE]}), OWNER), SOON),
    "another condition is removed": (Updated(pool(status={"conditions": [PAUSED]}), pool(status={})), SOON),
    **{f"{field} is written": (Updated(pool(status={}), pool(status={field: x})), SOON) for field, x in STATUS.items()},
    "its failure has another message": (
        Updated(pool(status={"conditions": [FAILURE]}), pool(status={"conditions": [{**FAILURE, "message": "4"}]})),
        NEVER,
    ),
    "its failure appears": (Updated(pool(status={}), pool(status={"conditions": [FAILURE]})), NEVER),
}


@pytest.mark.parametrize(("change", "expected"), POOL_CHANGES.values(), ids=POOL_CHANGES)
def test_p19_which_changes_of_a_pool_trigger_it(change, expected):
    assert by_name(wakes_of_owner(change)) == expected
