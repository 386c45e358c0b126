"""P14: a template that requires a restart reaches a ready VM only when it is the VM's turn."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.kubevirt.annotations import REVISION_NAME, TAKEOVER
from controller.kubevirt.resources import VMIS, VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.pool.plan import plan
from controller.runtime.actions import Delete, Patch, Plan, Restart, ThreeWayMerge
from tests.fakes.kubevirt import BROKEN
from tests.pool_builders import LABELS, intent_of, pool, revision, snapshot, vm_spec, vmi, vms
from tests.pool_simulation import PoolSimulation

ASCENDING = {"proactive": {"selectionPolicy": {"sortPolicy": "AscendingOrder"}}}


def changed_pool(*, most=1, replicas=4, **changes):
    fields = {"generation": 2, "spec": vm_spec(image="v2"), "updateStrategy": ASCENDING, **changes}
    return pool(replicas=replicas, maxUnavailable=most, **fields)


def seen(owner, machines, *, before=None, **more):
    kept = [revision(before or pool(spec=vm_spec(image="v1")), "web-1", number=1), revision(owner, "web-2", number=2)]
    return snapshot(owner, machines, revisions=kept, **more)


def old_vms(owner, *ordinals, spec=None, **changes):
    return vms(owner, *ordinals, revision="web-1", spec=spec or vm_spec(image="v1"), **changes)


def new_vms(owner, *ordinals, strategy="Always", **changes):
    """VMs with the current template in their spec."""
    spec = vm_spec(image="v2", labels={**LABELS, REVISION_NAME: "web-2"}, run_strategy=strategy)
    return vms(owner, *ordinals, revision="web-2", spec=spec, **changes)


def with_status(machine, **status):
    document = json.loads(msgspec.json.encode(machine))
    document["status"] = {**(document.get("status") or {}), **status}
    return (VMS if isinstance(machine, VirtualMachine) else VMIS).decode(msgspec.json.encode(document))


def merged(todo):
    return [each.key.name for each in todo.actions if isinstance(each, ThreeWayMerge)]


def deleted(todo, resource=VMIS):
    return [each.key.name for each in todo.actions if isinstance(each, Delete) and each.resource is resource]


def restarted(todo):
    return [each.key.name for each in todo.actions if isinstance(each, Restart)]


@pytest.mark.parametrize(("most", "names"), [(1, ["web-0"]), ("50%", ["web-0", "web-1"]), (9, None)])
def test_p14_only_as_many_ready_vms_get_the_template_as_may_be_unavailable(most, names):
    owner = changed_pool(most=most)
    todo = plan(seen(owner, old_vms(owner, 0, 1, 2, 3)))
    assert merged(todo) == (names or [f"web-{n}" for n in range(4)])
    assert ("wait until more are ready" in todo.held) == (names is not None)


def test_p14_a_ready_vm_with_the_template_uses_up_the_limit_until_it_is_restarted():
    owner = changed_pool()
    begun, waiting = new_vms(owner, 0), old_vms(owner, 1, 2, 3)
    running = [vmi(each, revision="web-1") for each in (*begun, *waiting)]
    todo = plan(seen(owner, (*begun, *waiting), vmis=running))
    assert deleted(todo) == ["web-0"]
    assert merged(todo) == []


def test_p14_a_vm_that_restarts_with_the_template_uses_up_the_limit():
    owner = changed_pool()
    begun, waiting = new_vms(owner, 0, ready=False), old_vms(owner, 1, 2, 3)
    running = [vmi(begun[0], ready=False), *(vmi(each) for each in waiting)]
    assert plan(seen(owner, (*begun, *waiting), vmis=running)).actions == ()


def test_p14_vms_that_are_not_ready_get_the_template_at_once():
    owner = changed_pool()
    machines = (*old_vms(owner, 0), *old_vms(owner, 1, 2, 3, ready=False))
    running = [vmi(machines[0]), *(vmi(each, ready=False) for each in machines[1:3])]
    assert merged(plan(seen(owner, machines, vmis=running))) == ["web-1", "web-2", "web-3"]


def test_p14_a_vm_that_its_user_stopped_gets_the_template_at_once():
    owner = changed_pool()
    halted = old_vms(owner, 2, 3, spec=vm_spec(image="v1", run_strategy="Halted"), ready=False, printable="Stopped")
    machines = (*old_vms(owner, 0, 1), *halted)
    assert merged(plan(seen(owner, machines, vmis=[vmi(each) for each in machines[:2]]))) == [
        "web-2",
        "web-3",
        "web-0",
    ]


def test_p14_a_change_without_a_restart_reaches_all_vms_at_once():
    owner = changed_pool(spec=vm_spec(image="v1"), labels={**LABELS, "new": "label"})
    assert merged(plan(seen(owner, old_vms(owner, 0, 1, 2, 3)))) == [f"web-{n}" for n in range(4)]


def test_p14_an_opportunistic_pool_changes_all_vms_at_once():
    owner = changed_pool(updateStrategy={"opportunistic": {}})
    assert len(merged(plan(seen(owner, old_vms(owner, 0, 1, 2, 3))))) == 4


def test_p14_a_vm_that_crashes_keeps_its_template_while_the_new_template_does_not_come_up():
    owner = changed_pool()
    broken, crashed, fine = new_vms(owner, 0, ready=False), old_vms(owner, 1, ready=False), old_vms(owner, 2, 3)
    running = [vmi(broken[0], ready=False), vmi(crashed[0], ready=False), *(vmi(each) for each in fine)]
    todo = plan(seen(owner, (*broken, *crashed, *fine), vmis=running))
    assert todo.actions == ()
    assert todo.held == "update: 3 virtual machines wait until more are ready"
    lost = plan(seen(owner, (*broken, *crashed, *fine), vmis=[running[0], *running[2:]]))
    assert lost.actions == ()


def test_p13_a_ready_vm_that_needs_new_disks_is_deleted_in_its_turn_and_its_spec_is_not_changed():
    before = pool(spec=vm_spec(image="v1", disks=["data"]))
    owner = changed_pool(spec=vm_spec(image="v1", disks=["other"]))
    machines = old_vms(owner, 0, 1, 2, 3, spec=vm_spec(image="v1", disks=["data"]))
    todo = plan(seen(owner, machines, before=before))
    assert deleted(todo, VMS) == ["web-0"]
    assert merged(todo) == []
    assert all(each.foreground for each in todo.actions if isinstance(each, Delete))


@pytest.mark.parametrize(("strategy", "by"), [("Always", "delete"), ("Once", "delete"), ("Manual", "restart")])
def test_p13_the_run_strategy_decides_how_a_vm_is_restarted(strategy, by):
    owner = changed_pool(replicas=1, spec=vm_spec(image="v2", run_strategy=strategy))
    machines = new_vms(owner, 0, strategy=strategy)
    todo = plan(seen(owner, machines, vmis=[vmi(machines[0], revision="web-1")]))
    assert (deleted(todo), restarted(todo)) == ((["web-0"], []) if by == "delete" else ([], ["web-0"]))


def test_p13_a_vm_with_rerun_on_failure_is_restarted_through_the_subresource():
    owner = changed_pool(replicas=1, spec=vm_spec(image="v2", run_strategy="RerunOnFailure"))
    machines = new_vms(owner, 0, strategy="RerunOnFailure")
    [action] = plan(seen(owner, machines, vmis=[vmi(machines[0], revision="web-1")])).actions
    assert isinstance(action, Restart)
    assert (action.uid, action.instance_uid) == ("uid-web-0", "uid-web-0")
    assert action.requests.path("default", "web-0", action.subresource) == (
        "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/web-0/restart"
    )


def test_p14_a_restart_that_is_requested_is_not_requested_again_and_uses_up_the_limit():
    owner = changed_pool(spec=vm_spec(image="v2", run_strategy="Manual"))
    requests = [{"action": "Stop", "uid": "uid-web-0"}, {"action": "Start"}]
    begun = with_status(new_vms(owner, 0, strategy="Manual")[0], stateChangeRequests=requests)
    waiting = old_vms(owner, 1, 2, 3, spec=vm_spec(image="v1", run_strategy="Manual"))
    running = [vmi(begun, revision="web-1"), *(vmi(each) for each in waiting)]
    assert plan(seen(owner, (begun, *waiting), vmis=running)).actions == ()


@pytest.mark.parametrize(("strategy", "requests"), [("Manual", [{"action": "Start"}]), ("Once", None)])
def test_p14_a_vm_between_its_stop_and_its_start_uses_up_the_limit(strategy, requests):
    owner = changed_pool(spec=vm_spec(image="v2", run_strategy=strategy))
    stopped = new_vms(owner, 0, strategy=strategy, ready=False, printable="Stopped")[0]
    between = with_status(stopped, stateChangeRequests=requests)
    waiting = old_vms(owner, 1, 2, 3, spec=vm_spec(image="v1", run_strategy=strategy))
    assert plan(seen(owner, (between, *waiting), vmis=[vmi(each) for each in waiting])).actions == ()


def test_p13_new_disks_for_a_vm_that_would_not_start_wait_for_its_user():
    before = pool(spec=vm_spec(disks=["data"], run_strategy="Manual"))
    owner = changed_pool(spec=vm_spec(disks=["other"], run_strategy="Manual"))
    machines = old_vms(owner, 0, 1, 2, 3, spec=vm_spec(disks=["data"], run_strategy="Manual"))
    todo = plan(seen(owner, machines, before=before))
    assert todo.actions == ()
    assert [(each.reason, each.once) for each in todo.notices][:1] == [
        (
            "UpdateHeld",
            "uid-web-0 it needs new disks, and its run strategy does not start a new virtual machine: delete it",
        )
    ]
    assert "web-0 waits: it needs new disks" in todo.held
    assert "3 more virtual machines wait" in todo.held


@pytest.mark.parametrize("field", ["instancetype", "preference"])
def test_p13_a_new_instance_type_or_preference_needs_a_restart(field):
    spec = {**vm_spec(image="v1"), field: {"name": "u2"}}
    before = pool(spec={**vm_spec(image="v1"), field: {"name": "u1"}})
    owner = changed_pool(replicas=1, spec=spec)
    template = {**spec["template"], "metadata": {"labels": {**LABELS, REVISION_NAME: "web-2"}}}
    machines = vms(owner, 0, revision="web-2", spec={**spec, "template": template})
    assert deleted(plan(seen(owner, machines, before=before, vmis=[vmi(machines[0], revision="web-1")]))) == ["web-0"]


def test_p13_another_strategy_for_volume_updates_needs_no_restart():
    owner = changed_pool(replicas=1, spec={**vm_spec(image="v1"), "updateVolumesStrategy": "Migration"})
    machines = new_vms(owner, 0)
    [action] = plan(seen(owner, machines, vmis=[vmi(machines[0], revision="web-1")])).actions
    assert isinstance(action, Patch)


# Delicate moments


MIGRATING = {"migrationState": {"startTimestamp": "2026-08-01T11:59:00Z"}}
RESIZING = {"conditions": [{"type": "Ready", "status": "True"}, {"type": "HotVCPUChange", "status": "True"}]}


def test_p13_a_ready_vm_in_a_delicate_moment_waits_and_another_vm_takes_its_turn():
    owner = changed_pool()
    machines = old_vms(owner, 0, 1, 2, 3)
    running = [with_status(vmi(machines[0]), **MIGRATING), *(vmi(each) for each in machines[1:])]
    todo = plan(seen(owner, machines, vmis=running))
    assert merged(todo) == ["web-1"]
    assert "web-0 waits: a live migration is in progress" in todo.held
    [notice] = todo.notices
    assert (notice.reason, notice.warning) == ("UpdateHeld", False)
    assert notice.message == "web-0 is not updated now: a live migration is in progress"
    assert notice.once == "uid-web-0 a live migration is in progress"


def test_p13_a_vm_that_is_not_ready_waits_in_a_delicate_moment():
    owner = changed_pool(replicas=1)
    machines = [with_status(old_vms(owner, 0, ready=False)[0], snapshotInProgress="monday")]
    todo = plan(seen(owner, machines, vmis=[vmi(machines[0], ready=False)]))
    assert todo.actions == ()
    assert todo.held == "update: web-0 waits: snapshot monday is in progress"


def test_p13_a_vm_without_a_vmi_waits_during_a_restore():
    owner = changed_pool(replicas=1)
    machines = [with_status(old_vms(owner, 0, ready=False)[0], restoreInProgress="monday")]
    assert plan(seen(owner, machines, vmis=[])).actions == ()


def test_p13_a_delicate_vm_with_the_template_is_not_restarted_and_uses_up_the_limit():
    owner = changed_pool()
    begun, waiting = new_vms(owner, 0), old_vms(owner, 1, 2, 3)
    running = [with_status(vmi(begun[0], revision="web-1"), **MIGRATING), *(vmi(each) for each in waiting)]
    assert plan(seen(owner, (*begun, *waiting), vmis=running)).actions == ()


def test_p13_a_delicate_vm_is_not_recreated():
    before = pool(spec=vm_spec(disks=["data"]))
    owner = changed_pool(replicas=1, spec=vm_spec(disks=["other"]))
    machines = old_vms(owner, 0, spec=vm_spec(disks=["data"]))
    todo = plan(seen(owner, machines, before=before, vmis=[with_status(vmi(machines[0]), **MIGRATING)]))
    assert todo.actions == ()


def test_p13_a_change_without_a_restart_does_not_wait_for_a_migration():
    owner = changed_pool(replicas=1, spec=vm_spec(image="v1"), labels={**LABELS, "new": "label"})
    machines = old_vms(owner, 0)
    todo = plan(seen(owner, machines, vmis=[with_status(vmi(machines[0]), **MIGRATING)]))
    assert merged(todo) == ["web-0"]


def test_p13_a_resize_that_the_new_spec_started_does_not_delay_the_restart():
    owner = changed_pool(replicas=2)
    begun, waiting = new_vms(owner, 0), old_vms(owner, 1)
    running = [with_status(vmi(begun[0], revision="web-1"), **RESIZING), with_status(vmi(waiting[0]), **RESIZING)]
    todo = plan(seen(owner, (*begun, *waiting), vmis=running))
    assert deleted(todo) == ["web-0"]
    assert "web-1 waits: a hot-plug of CPUs is in progress" in todo.held


def test_p13_manual_recovery_is_a_warning():
    owner = changed_pool(replicas=1)
    condition = [{"type": "ManualRecoveryRequired", "status": "True"}]
    machines = [with_status(old_vms(owner, 0, ready=False)[0], conditions=condition)]
    [notice] = plan(seen(owner, machines, vmis=[])).notices
    assert notice.warning


# Takeover


def test_a_takeover_counts_the_vms_of_the_whole_update_and_not_only_of_the_first_turn():
    owner = changed_pool(annotations={TAKEOVER: ""})
    kept = [revision(pool(spec=vm_spec(image="v1")), "web-1", number=1)]
    found = snapshot(owner, old_vms(owner, 0, 1, 2, 3), revisions=kept)
    found = msgspec.structs.replace(found, limits=msgspec.structs.replace(found.limits, takes_over=True))
    assert "4 virtual machines would be restarted" in plan(found).held


# Simulations


def rollout(simulation, image):
    template = simulation.pool["spec"]["virtualMachineTemplate"]
    simulation.change(virtualMachineTemplate={**template, "spec": vm_spec(image=image)})


def images(simulation):
    return {
        name: each["spec"]["template"]["spec"]["volumes"][0]["containerDisk"]["image"]
        for name, each in simulation.vms.items()
    }


def live(simulation, passes):
    for _ in range(passes):
        simulation.run_pass()
        simulation.live_on()


@settings(max_examples=40)
@given(st.integers(2, 6), st.integers(1, 5), st.integers(0, 6), st.sets(st.integers(0, 5)))
def test_p14_a_bad_template_reaches_only_as_many_vms_as_may_be_unavailable(replicas, most, passes, crashes):
    """VMs with the earlier template crash during the rollout. When the template is reverted, the controller changes
    only the VMs that it had changed.
    """
    simulation = PoolSimulation(pool(replicas=replicas, spec=vm_spec(image="v1"), maxUnavailable=most))
    simulation.come_to_rest()
    uids = {name: each["metadata"]["uid"] for name, each in simulation.vmis.items()}
    rollout(simulation, BROKEN)
    live(simulation, passes)
    crashed = {f"web-{n}" for n in crashes} & set(uids)
    for name in crashed & set(simulation.vmis):
        simulation.server.remove(VMIS, simulation.key(name))
    live(simulation, 6)
    limit = min(intent_of(simulation.snapshot().owner).most_unavailable, replicas)
    changed = {name for name, image in images(simulation).items() if image == BROKEN}
    # Before the first VM has the template, VMs that are not ready get the template at once.
    assert len(changed) <= (limit if passes else max(limit, len(crashed)))
    before = {name: (each["metadata"]["uid"], each["metadata"]["generation"]) for name, each in simulation.vms.items()}
    rollout(simulation, "v1")
    simulation.come_to_rest()
    assert set(images(simulation).values()) == {"v1"}
    after = {name: (each["metadata"]["uid"], each["metadata"]["generation"]) for name, each in simulation.vms.items()}
    assert {name for name in after if after[name] != before[name]} == changed
    touched = {name for name, each in simulation.vmis.items() if each["metadata"]["uid"] != uids[name]}
    assert touched <= changed | crashed
    assert plan(simulation.snapshot()) == Plan()


@pytest.mark.parametrize("strategy", ["Always", "Once", "Manual", "RerunOnFailure"])
def test_p13_a_running_vm_of_every_run_strategy_gets_the_template_and_runs_again(strategy):
    simulation = PoolSimulation(pool(spec=vm_spec(image="v1", run_strategy=strategy), maxUnavailable=1))
    simulation.come_to_rest()
    if strategy == "Manual":
        for name in simulation.vms:
            simulation.server.change(
                VMS, simulation.key(name), {"status": {"stateChangeRequests": [{"action": "Start"}]}}
            )
        simulation.come_to_rest()
    uids = {name: each["metadata"]["uid"] for name, each in simulation.vmis.items()}
    assert len(uids) == 3
    template = simulation.pool["spec"]["virtualMachineTemplate"]
    simulation.change(virtualMachineTemplate={**template, "spec": vm_spec(image="v2", run_strategy=strategy)})
    for _ in range(30):
        simulation.run_pass()
        simulation.live_on()
        up = [each for each in simulation.vmis.values() if each["status"]["conditions"][0]["status"] == "True"]
        assert len(up) >= 2
    simulation.come_to_rest()
    assert {name for name, each in simulation.vmis.items() if each["metadata"]["uid"] != uids[name]} == set(uids)
    assert set(images(simulation).values()) == {"v2"}
    assert simulation.pool["status"]["updatedReplicas"] == simulation.pool["status"]["readyReplicas"] == 3
    assert simulation.pool["status"]["printableStatus"] == "Running"
    sent = [each for each in simulation.server.requests if each.verb == "update"]
    assert len(sent) == (3 if strategy in ("Manual", "RerunOnFailure") else 0)
