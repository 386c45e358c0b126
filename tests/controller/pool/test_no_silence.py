"""P22: nothing waits in silence, and what is refused for one VM delays only this VM."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from controller.kubevirt.resources import PVCS, VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.pool.plan import plan
from controller.pool.status import next_status
from tests.builders import NOW
from tests.fakes.requests import Request
from tests.pool_builders import pool, revision, snapshot, vm, vm_spec, vmi, vms
from tests.pool_simulation import PoolSimulation
from tests.pool_updates import new_vms

OLD, NEW = pool(replicas=3), pool(replicas=3, generation=2, maxUnavailable=1, spec=vm_spec(image="v2"))
REVISIONS = [revision(OLD, number=1), revision(NEW, number=2)]
OFFLINE = {"proactive": {"statePreservation": "Offline"}}


def deleted_for(machine, minutes: int):
    return replace(machine, metadata=replace(machine.metadata, deletion_timestamp=NOW - timedelta(minutes=minutes)))


def stall_of(machines, **more) -> str:
    """The message of the condition Stalled, or ""."""
    status = next_status(snapshot(NEW, machines, revisions=REVISIONS, **more), ())
    return next((each.message or "" for each in status.conditions or () if each.type == "Stalled"), "")


def stuck(minutes: int) -> VirtualMachine:
    return deleted_for(vm("web-0", owner=NEW, deleting=True, finalizers=("backup.example/hold",)), minutes)


def test_p22_a_vm_that_stays_terminating_stalls_the_pool():
    machines = (stuck(11), *vms(NEW, 1, 2))
    assert stall_of(machines) == "web-0: Terminating, held by finalizers: backup.example/hold"
    assert stall_of((stuck(9), *vms(NEW, 1, 2))) == ""


def test_p22_the_plan_wakes_when_a_terminating_vm_reaches_its_deadline():
    assert plan(snapshot(OLD, (stuck(9), *vms(OLD, 1, 2)), revisions=[REVISIONS[0]])).requeue_after_s == 60


def stall_events(machines, **more) -> list[str]:
    """The first VM of each Event RolloutStalled, after its number of VMs."""
    notices = plan(snapshot(NEW, machines, revisions=REVISIONS, **more)).notices
    return [each.message.partition(" for longer than 600 ")[0] for each in notices if each.reason == "RolloutStalled"]


BLOCKED = "1 virtual machines block the rollout because they are not ready, web-0"


def test_p22_a_rollout_behind_a_terminating_vm_stalls_with_an_event():
    assert stall_events((stuck(11), *vms(NEW, 1, 2))) == [BLOCKED]
    assert stall_events((stuck(9), *vms(NEW, 1, 2))) == []


def test_p22_an_old_vmi_that_stays_terminating_stalls_the_rollout():
    first = vm("web-0", owner=NEW, revision="web-2", ready=False, ready_for_s=7200, printable="Stopping")
    machines = (first, *vms(NEW, 1, 2))
    ending = deleted_for(vmi(first, revision="web-1", deleting=True, ready=False, ready_for_s=7200), 11)
    running = [ending, *map(vmi, machines[1:])]
    assert stall_of(machines, vmis=running).startswith("web-0: Terminating")
    assert stall_events(machines, vmis=running) == [BLOCKED]


def test_p22_an_outdated_vm_that_is_held_and_blocks_the_others_stalls_the_rollout():
    held = vm("web-0", owner=NEW, ready=False, ready_for_s=7200, snapshot="monday")
    assert stall_of((held, *vms(NEW, 1, 2))).startswith("web-0: ")
    assert stall_events((held, *vms(NEW, 1, 2))) == [BLOCKED]
    assert stall_of((vm("web-0", owner=NEW, ready=False, ready_for_s=7200), *vms(NEW, 1, 2))) == ""
    assert stall_events((held, *new_vms(NEW, 1, 2))) == [], "no other VM waits"


def refuses_patch_of(name: str):
    def refuses(request: Request) -> bool:
        return request.verb == "patch" and request.key.name == name and not request.subresource

    return refuses


def test_p22_a_vm_whose_patch_is_refused_delays_no_other_vm_of_a_deleted_pool():
    simulation = PoolSimulation(pool(replicas=5, scaleInStrategy=OFFLINE, spec=vm_spec(disks=("data",))))
    simulation.come_to_rest()
    simulation.refuses = lambda request: request.resource is VMS and refuses_patch_of("web-1")(request)
    simulation.delete_pool()
    simulation.run_passes(20)
    assert set(simulation.vms) == {"web-1"}
    assert set(simulation.claims) == {f"data-{ordinal}" for ordinal in range(5)}


@pytest.mark.parametrize(("finalizers", "members"), [((), 0), (None, 3)], ids=["finalizer", "note"])
def test_p22_a_refused_patch_of_the_pool_stops_only_what_needs_the_patch(finalizers, members):
    """A new pool needs its finalizer for its VMs. A note stops nothing else, and its refusal is told."""
    more = {} if finalizers is None else {"finalizers": finalizers}
    simulation = PoolSimulation(pool(replicas=3, annotations={"vmherd.dev/partition": "2"}, **more))
    simulation.refuses = refuses_patch_of("web")
    simulation.run_passes(5)
    assert len(simulation.members()) == members
    failures = [each for each in simulation.pool["status"].get("conditions", []) if each["type"] == "ReplicaFailure"]
    assert [each["reason"] for each in failures] == ["FailedPoolUpdate"]


def test_p22_a_create_that_waits_for_a_disk_has_a_reason_and_a_deadline():
    simulation = PoolSimulation(pool(replicas=3, finalizers=(), spec=vm_spec(disks=("data",))))
    simulation.come_to_rest()
    protection = {"metadata": {"finalizers": ["kubernetes.io/pvc-protection"]}}
    simulation.server.change(PVCS, simulation.key("data-1"), protection)
    simulation.delete_by_user("web-1")
    simulation.run_passes(8)
    [failure] = [each for each in simulation.pool["status"]["conditions"] if each["type"] == "ReplicaFailure"]
    assert failure["message"] == "error during scale out: default/web-1 waits: the disk data-1 is being deleted"
    simulation.run_passes(130)
    assert "Stalled" in {each["type"] for each in simulation.pool["status"]["conditions"]}
    simulation.server.finalize(PVCS, simulation.key("data-1"))
    simulation.come_to_rest()
    assert "conditions" not in simulation.pool["status"]
