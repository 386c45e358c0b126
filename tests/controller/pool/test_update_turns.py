"""P13, P14, P21: ready VMs get a template in their turn."""

import json

import msgspec
import pytest
from msgspec.structs import replace

from controller.kubevirt.annotations import BUSY_UNTIL, MIN_READY, MOST_DISRUPTIVE, REVISION_NAME, VM_GENERATION
from controller.kubevirt.resources import VMIS, VMS
from controller.kubevirt.vm_types import VirtualMachine
from controller.pool.plan import plan
from controller.runtime.actions import Delete, Restart
from tests.builders import seconds_ago
from tests.pool_builders import LABELS, pool, vm_spec, vmi, vms
from tests.pool_scenes import ASCENDING, deleted_vms, during_update, limited_pool, merged, new_vms, old_vms, restarted


def with_status(machine, **status):
    document = json.loads(msgspec.json.encode(machine))
    document["status"] = {**(document.get("status") or {}), **status}
    return (VMS if isinstance(machine, VirtualMachine) else VMIS).decode(msgspec.json.encode(document))


@pytest.mark.parametrize(("most", "names"), [(1, ["web-0"]), ("50%", ["web-0", "web-1"]), (9, None)])
def test_p14_only_as_many_ready_vms_get_the_template_as_may_be_unavailable(most, names):
    owner = limited_pool(most=most)
    todo = plan(during_update(owner, old_vms(owner, 0, 1, 2, 3)))
    assert merged(todo) == (names or [f"web-{n}" for n in range(4)])
    assert ("wait until more are ready" in todo.held) == (names is not None)


@pytest.mark.parametrize(("ready", "extra", "names"), [(False, 0, []), (True, 0, ["web-0"]), (False, 1, ["web-0"])])
def test_p2_p14_a_vm_that_waits_for_its_release_is_unavailable_if_it_takes_a_place_and_is_not_ready(
    ready, extra, names
):
    owner = limited_pool(replicas=4 - extra)
    waiting = old_vms(owner, 3, labels={**LABELS, "app": "other"}, ready=ready, age_s=10)
    todo = plan(during_update(owner, (*old_vms(owner, 0, 1, 2), *waiting)))
    assert merged(todo) == names


def test_p2_p14_the_next_pass_comes_when_a_vm_that_waits_for_its_release_becomes_available():
    owner = limited_pool(replicas=4, annotations={MIN_READY: "9"})
    waiting = old_vms(owner, 3, labels={**LABELS, "app": "other"}, age_s=10)
    machines = (*old_vms(owner, 0, 1, 2), *waiting)
    todo = plan(during_update(owner, machines, vmis=[*map(vmi, machines[:3]), vmi(waiting[0], ready_for_s=4)]))
    assert (merged(todo), todo.requeue_after_s) == ([], 5)


MIGRATING = {"migrationState": {"startTimestamp": "2026-08-01T11:59:00Z"}}
RESIZING = {"conditions": [{"type": "Ready", "status": "True"}, {"type": "HotVCPUChange", "status": "True"}]}
REQUESTED = {"stateChangeRequests": [{"action": "Stop", "uid": "uid-web-0"}, {"action": "Start"}]}
BETWEEN = {"stateChangeRequests": [{"action": "Start"}]}
STOPPED = {"ready": False, "printable": "Stopped"}

USING_UP = {
    "a restart": ("Always", {"ready": False}, {}, {"ready": False}, {}),
    "a requested restart": ("Manual", {}, REQUESTED, {"revision": "web-1"}, {}),
    "between a stop and a requested start": ("Manual", STOPPED, BETWEEN, None, {}),
    "between a stop and a start": ("Once", STOPPED, {}, None, {}),
    "a migration": ("Always", {}, {}, {"revision": "web-1"}, MIGRATING),
}


@pytest.mark.parametrize(("strategy", "of_vm", "vm_status", "of_vmi", "vmi_status"), USING_UP.values(), ids=USING_UP)
def test_p14_a_vm_with_the_template_uses_up_the_limit_until_it_is_available(
    strategy, of_vm, vm_status, of_vmi, vmi_status
):
    owner = limited_pool(spec=vm_spec(image="v2", run_strategy=strategy))
    begun = with_status(new_vms(owner, 0, strategy=strategy, **of_vm)[0], **vm_status)
    waiting = old_vms(owner, 1, 2, 3, spec=vm_spec(image="v1", run_strategy=strategy))
    running = [] if of_vmi is None else [with_status(vmi(begun, **of_vmi), **vmi_status)]
    assert plan(during_update(owner, (begun, *waiting), vmis=[*running, *map(vmi, waiting)])).actions == ()


@pytest.mark.parametrize(
    ("strategy", "by"), [("Always", Delete), ("Once", Delete), ("Manual", Restart), ("RerunOnFailure", Restart)]
)
def test_p13_the_run_strategy_decides_how_a_vm_is_restarted(strategy, by):
    owner = limited_pool(replicas=1, spec=vm_spec(image="v2", run_strategy=strategy))
    machines = new_vms(owner, 0, strategy=strategy)
    [action] = plan(during_update(owner, machines, vmis=[vmi(machines[0], revision="web-1")])).actions
    assert type(action) is by
    if isinstance(action, Restart):
        assert (action.uid, action.instance_uid) == ("uid-web-0", "uid-web-0")
        assert action.requests.path("default", "web-0", action.subresource) == (
            "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/web-0/restart"
        )


def test_p14_a_vm_that_crashes_keeps_its_template_while_the_new_template_does_not_come_up():
    owner = limited_pool()
    broken, crashed, fine = new_vms(owner, 0, ready=False), old_vms(owner, 1, ready=False), old_vms(owner, 2, 3)
    running = [vmi(broken[0], ready=False), vmi(crashed[0], ready=False), *(vmi(each) for each in fine)]
    todo = plan(during_update(owner, (*broken, *crashed, *fine), vmis=running))
    assert todo.actions == ()
    assert todo.held == "update: 3 virtual machines wait until more are ready"
    lost = plan(during_update(owner, (*broken, *crashed, *fine), vmis=[running[0], *running[2:]]))
    assert lost.actions == ()


def test_p14_a_vm_that_is_not_ready_gets_the_template_if_those_with_the_template_wait_for_it():
    owner = limited_pool(1, replicas=3)
    down, waiting = old_vms(owner, 0, ready=False), new_vms(owner, 1, 2)
    running = [vmi(down[0], ready=False), *(vmi(each, revision="web-1") for each in waiting)]
    todo = plan(during_update(owner, (*down, *waiting), vmis=running))
    assert (merged(todo), restarted(todo)) == (["web-0"], [])
    ready = plan(during_update(owner, (*old_vms(owner, 0), *waiting), vmis=[vmi(old_vms(owner, 0)[0]), *running[1:]]))
    assert (merged(ready), len(restarted(ready))) == ([], 1)


def test_p13_a_ready_vm_that_needs_new_disks_is_deleted_in_its_turn_and_its_spec_is_not_changed():
    before = pool(spec=vm_spec(image="v1", disks=["data"]))
    owner = limited_pool(spec=vm_spec(image="v1", disks=["other"]))
    machines = old_vms(owner, 0, 1, 2, 3, spec=vm_spec(image="v1", disks=["data"]))
    todo = plan(during_update(owner, machines, before=before))
    assert deleted_vms(todo) == ["web-0"]
    assert merged(todo) == []
    assert all(each.foreground for each in todo.actions if isinstance(each, Delete))


@pytest.mark.parametrize("field", ["instancetype", "preference"])
def test_p13_a_new_instance_type_or_preference_needs_a_restart(field):
    spec = {**vm_spec(image="v1"), field: {"name": "u2"}}
    before = pool(spec={**vm_spec(image="v1"), field: {"name": "u1"}})
    owner = limited_pool(replicas=1, spec=spec)
    template = {**spec["template"], "metadata": {"labels": {**LABELS, REVISION_NAME: "web-2"}}}
    machines = vms(owner, 0, revision="web-2", spec={**spec, "template": template})
    running = [vmi(machines[0], revision="web-1")]
    assert restarted(plan(during_update(owner, machines, before=before, vmis=running))) == ["web-0"]


# Delicate moments


def test_p13_a_ready_vm_in_a_delicate_moment_waits_and_another_vm_takes_its_turn():
    owner = limited_pool()
    machines = old_vms(owner, 0, 1, 2, 3)
    running = [with_status(vmi(machines[0]), **MIGRATING), *(vmi(each) for each in machines[1:])]
    todo = plan(during_update(owner, machines, vmis=running))
    assert merged(todo) == ["web-1"]
    assert "web-0 waits: a live migration is in progress" in todo.held
    [notice] = todo.notices
    assert (notice.reason, notice.warning) == ("UpdateHeld", False)
    assert notice.message == "web-0 is not updated now: a live migration is in progress"
    assert notice.once == "uid-web-0 a live migration is in progress"


def test_p13_a_resize_that_the_new_spec_started_does_not_delay_the_restart():
    owner = limited_pool(replicas=2)
    begun, waiting = new_vms(owner, 0), old_vms(owner, 1)
    running = [with_status(vmi(begun[0], revision="web-1"), **RESIZING), with_status(vmi(waiting[0]), **RESIZING)]
    todo = plan(during_update(owner, (*begun, *waiting), vmis=running))
    assert restarted(todo) == ["web-0"]
    assert "web-1 waits: a hot-plug of CPUs is in progress" in todo.held


def test_p14_a_template_that_stops_vms_takes_turns_and_leaves_busy_ones_running():
    halted = {"spec": vm_spec(run_strategy="Halted"), "maxUnavailable": 1, "updateStrategy": ASCENDING}
    owner = pool(replicas=3, generation=2, **halted)
    busy = vms(owner, 0, revision="web-1", spec=vm_spec(), annotations={BUSY_UNTIL: "2100-01-01T00:00:00Z"})
    machines = (*busy, *vms(owner, 1, 2, revision="web-1", spec=vm_spec()))
    todo = plan(during_update(owner, machines, before=pool()))
    assert merged(todo) == ["web-1"]
    assert todo.actions[-1].why == "stop, from revision web-1 to web-2"
    owner = pool(replicas=3, generation=2, annotations={MOST_DISRUPTIVE: "live"}, **halted)
    assert merged(plan(during_update(owner, machines, before=pool()))) == []


def test_p13_an_undo_of_a_live_change_restarts_a_vmi_that_kubevirt_says_runs_the_spec_of_its_start():
    owner = limited_pool(replicas=1)
    asked = {"type": "RestartRequired", "status": "True", "lastTransitionTime": seconds_ago(60)}
    [machine] = new_vms(owner, 0, conditions=[asked])
    machine = replace(machine, metadata=replace(machine.metadata, generation=3))
    running = vmi(machine, revision="web-1", annotations={VM_GENERATION: "3"})
    assert restarted(plan(during_update(owner, [machine], vmis=[running]))) == ["web-0"]
