"""P14: how many VMs an update may make unavailable at the same time, and the conditions that stop an update."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from controller.kubevirt.annotations import MIN_READY, PARTITION, PROGRESS_DEADLINE, REVISION_NAME
from controller.kubevirt.resources import VMIS, VMS
from controller.pool.members.machine import Machine
from controller.pool.plan import plan
from controller.pool.rollout.limits import count_unavailable
from controller.runtime.actions import Create, Delete
from controller.runtime.members.groups import Members
from tests.builders import NOW, seconds_ago
from tests.fakes.kubevirt import BROKEN
from tests.pool_builders import LABELS, pool, revision, snapshot, vm_spec, vmi, vms
from tests.pool_healing import announced_for, noted
from tests.pool_simulation import PoolSimulation

BEFORE = pool(spec=vm_spec(image="v1"))
ASCENDING = {"proactive": {"selectionPolicy": {"sortPolicy": "AscendingOrder"}}}
HEALING = {"startUpFailureThreshold": 1}


def updated_pool(replicas=4, most=1, **changes):
    fields = {"generation": 2, "spec": vm_spec(image="v2"), "updateStrategy": ASCENDING, **changes}
    return pool(replicas=replicas, maxUnavailable=most, **fields)


def machines_of(owner, *ordinals, strategy="Always", **changes):
    spec = vm_spec(image="v2", labels={**LABELS, REVISION_NAME: "web-2"}, run_strategy=strategy)
    return vms(owner, *ordinals, **{"revision": "web-2", "spec": spec, **changes})


def outdated(machines, **changes):
    return [vmi(each, revision="web-1", **changes) for each in machines]


def seen(owner, machines, vmis, **more):
    kept = [revision(BEFORE, "web-1", number=1), revision(owner, "web-2", number=2)]
    return snapshot(owner, machines, vmis=vmis, revisions=kept, **more)


def restarted(todo):
    return [each.key.name for each in todo.actions if isinstance(each, Delete) and each.resource is VMIS]


@pytest.mark.parametrize(
    ("replicas", "most", "allowed"),
    [(4, 1, 1), (4, 3, 3), (4, 9, 4), (4, "25%", 1), (4, "74%", 2), (4, "1%", 1), (4, "100%", 4), (4, None, 4)],
)
def test_p14_at_most_max_unavailable_are_restarted_at_once(replicas, most, allowed):
    owner = updated_pool(replicas, most)
    machines = machines_of(owner, *range(replicas))
    assert restarted(plan(seen(owner, machines, outdated(machines)))) == [f"web-{n}" for n in range(allowed)]


def test_p14_members_that_are_not_ready_count_towards_the_limit():
    owner = updated_pool(most=2)
    machines = machines_of(owner, 0, 1, 2, 3)
    vmis = [vmi(machines[0], ready=False), *outdated(machines[1:])]
    assert restarted(plan(seen(owner, machines, vmis))) == ["web-1"]


def test_p14_a_vm_without_a_vmi_is_unavailable():
    owner = updated_pool(most=1)
    machines = machines_of(owner, 0, 1, 2, 3)
    todo = plan(seen(owner, machines, outdated(machines[1:])))
    assert restarted(todo) == []
    assert "wait" in todo.held


def test_p14_a_vm_with_a_terminating_vmi_is_unavailable():
    owner = updated_pool(most=1)
    machines = machines_of(owner, 0, 1, 2, 3)
    vmis = [vmi(machines[0], revision="web-1", deleting=True), *outdated(machines[1:])]
    assert restarted(plan(seen(owner, machines, vmis))) == []


def test_p14_a_vm_that_its_user_stopped_is_not_unavailable():
    owner = updated_pool(most=1)
    stopped = machines_of(owner, 0, strategy="Halted", ready=False, printable="Stopped")
    machines = machines_of(owner, 1, 2, 3)
    assert restarted(plan(seen(owner, (*stopped, *machines), outdated(machines)))) == ["web-1"]


def test_p14_vmis_that_are_not_ready_come_first_and_do_not_count_towards_the_limit():
    owner = updated_pool(most=1)
    machines = machines_of(owner, 0, 1, 2, 3)
    vmis = [*outdated(machines[:3]), *outdated(machines[3:], ready=False)]
    assert restarted(plan(seen(owner, machines, vmis))) == ["web-3"]
    owner = updated_pool(most=2)
    assert restarted(plan(seen(owner, machines, vmis))) == ["web-3", "web-0"]


def test_p14_a_vm_that_the_same_pass_heals_counts_towards_the_limit():
    owner = updated_pool(most=1, autohealing=HEALING)
    failing = machines_of(owner, 0, ready=False, failures=1)
    machines = machines_of(owner, 1, 2, 3)
    running = [vmi(failing[0], ready=False), *outdated(machines)]
    assert restarted(plan(seen(owner, (*failing, *machines), running))) == []
    todo = plan(seen(announced_for(owner, *failing), (*failing, *machines), running))
    assert [each.key.name for each in todo.actions if isinstance(each, Delete) and each.resource is VMS] == ["web-0"]
    assert restarted(todo) == []


def test_p14_a_vm_that_the_same_pass_heals_counts_only_once():
    owner = updated_pool(most=2, autohealing=HEALING)
    failing = machines_of(owner, 0, ready=False, failures=1)
    machines = machines_of(owner, 1, 2, 3)
    running = [vmi(failing[0], ready=False), *outdated(machines)]
    for announced in (owner, announced_for(owner, *failing)):
        assert restarted(plan(seen(announced, (*failing, *machines), running))) == ["web-1"]


def test_p14_a_terminating_vm_is_unavailable_even_if_its_vmi_is_ready():
    owner = updated_pool(most=1)
    leaving = machines_of(owner, 0, deleting=True, finalizers=("x",))
    machines = machines_of(owner, 1, 2, 3)
    assert restarted(plan(seen(owner, (*leaving, *machines), [vmi(leaving[0]), *outdated(machines)]))) == []


def test_p14_no_vmi_is_restarted_before_the_cache_shows_earlier_restarts():
    owner = updated_pool(most=2)
    machines = machines_of(owner, 0, 1, 2, 3)
    assert plan(seen(owner, machines, outdated(machines), settled=False)).actions == ()


def test_p14_a_restarted_vm_is_available_after_min_ready_seconds():
    owner = updated_pool(most=1, annotations={MIN_READY: "60"})
    machines = machines_of(owner, 0, 1, 2, 3)
    young = plan(seen(owner, machines, [vmi(machines[0], ready=True, ready_for_s=20), *outdated(machines[1:])]))
    assert restarted(young) == []
    assert young.requeue_after_s == pytest.approx(40)
    old = plan(seen(owner, machines, [vmi(machines[0], ready=True, ready_for_s=60), *outdated(machines[1:])]))
    assert restarted(old) == ["web-1"]


@pytest.mark.parametrize("text", ["soon", "-1", "1.5", ""])
def test_p14_invalid_min_ready_seconds_count_as_zero_and_give_an_event(text):
    owner = updated_pool(most=1, annotations={MIN_READY: text})
    machines = machines_of(owner, 0, 1, 2, 3)
    todo = plan(seen(owner, machines, [vmi(machines[0], ready=True, ready_for_s=1), *outdated(machines[1:])]))
    assert restarted(todo) == ["web-1"]
    assert [notice.reason for notice in todo.notices] == ["InvalidAnnotation"]


def test_p14_an_invalid_partition_stops_the_rollout():
    owner = updated_pool(annotations={PARTITION: "half"})
    machines = machines_of(owner, 0, 1, 2, 3)
    todo = plan(seen(owner, machines, outdated(machines)))
    assert todo.actions == ()
    assert [notice.reason for notice in todo.notices] == ["InvalidAnnotation"]


class CountedReads(tuple[Machine, ...]):
    """A group that counts how many VMs are read one by one."""

    __slots__ = ()
    number = 0

    def __iter__(self) -> Iterator[Machine]:
        for each in tuple.__iter__(self):
            CountedReads.number += 1
            yield each


def test_p14_a_scale_out_below_the_partition_reads_each_vm_a_few_times():
    owner = pool(replicas=900, annotations={PARTITION: "900"}, spec=vm_spec(image="v2"), generation=2)
    revisions = [revision(pool(), "web-1", number=1), revision(owner, "web-2", number=2)]
    seen = snapshot(owner, vms(owner, *range(600), revision="web-1"), revisions=revisions)
    todo = plan(replace(seen, members=Members(tuple(map(CountedReads, seen.members.groups)))))
    creates = [json.loads(each.body) for each in todo.actions if isinstance(each, Create)]
    assert {each["metadata"]["labels"][REVISION_NAME] for each in creates if each["kind"] == VMS.kind} == {"web-1"}
    assert len(creates) >= 250
    assert CountedReads.number < 10 * 600


def test_p14_ordinals_below_the_partition_are_not_restarted():
    owner = updated_pool(most=4, annotations={PARTITION: "3"})
    machines = machines_of(owner, 0, 1, 2, 3)
    assert restarted(plan(seen(owner, machines, outdated(machines)))) == ["web-3"]


def test_p14_a_stalled_rollout_gives_one_event_at_its_deadline():
    owner = updated_pool(most=1, annotations={PROGRESS_DEADLINE: "120"})
    machines = machines_of(owner, 0, 1, 2, 3)

    def after(seconds):
        running = [vmi(machines[0], ready=False, ready_for_s=seconds), *outdated(machines[1:])]
        return plan(seen(noted(owner, machines[0], seconds), machines, running))

    assert after(50).notices == ()
    assert after(50).requeue_after_s == pytest.approx(70)
    [notice] = after(121).notices
    assert notice.reason == "RolloutStalled"
    assert "web-0" in notice.message
    assert notice.once == after(500).notices[0].once != ""
    assert restarted(after(121)) == []


def test_p14_a_vm_whose_vmi_never_appears_stalls_the_rollout_too():
    owner = updated_pool(most=1, annotations={PROGRESS_DEADLINE: "120"})
    lost = machines_of(owner, 0, ready=False, ready_for_s=300)
    machines = machines_of(owner, 1, 2, 3)
    [notice] = plan(seen(owner, (*lost, *machines), outdated(machines))).notices
    assert notice.reason == "RolloutStalled"


def test_p14_the_progress_deadline_starts_with_the_new_template():
    owner = updated_pool(most=1, annotations={PROGRESS_DEADLINE: "120"})
    lost = machines_of(owner, 0, ready=False, ready_for_s=300)
    machines = machines_of(owner, 1, 2, 3)
    new = revision(owner, "web-2", number=2)
    new = replace(new, metadata=replace(new.metadata, creation_timestamp=seconds_ago(50)))
    kept = [revision(BEFORE, "web-1", number=1), new]
    owner = noted(owner, lost[0], 300)
    todo = plan(snapshot(owner, (*lost, *machines), vmis=outdated(machines), revisions=kept))
    assert todo.notices == ()
    assert todo.requeue_after_s == pytest.approx(70)


def test_p14_a_rollout_that_makes_progress_is_not_stalled():
    owner = updated_pool(most=2)
    machines = machines_of(owner, 0, 1, 2, 3)
    todo = plan(seen(owner, machines, [vmi(machines[0], ready=False, ready_for_s=9999), *outdated(machines[1:])]))
    assert restarted(todo) == ["web-1"]
    assert todo.notices == ()


def test_p14_a_vm_that_its_user_stopped_does_not_stall_the_rollout():
    owner = updated_pool(most=1)
    stopped = machines_of(owner, 0, strategy="Halted", ready=False, ready_for_s=9999)
    busy = machines_of(owner, 1)
    machines = machines_of(owner, 2, 3)
    running = [vmi(busy[0], ready=False, ready_for_s=5), *outdated(machines)]
    assert plan(seen(owner, (*stopped, *busy, *machines), running)).notices == ()


def test_p14_no_pass_is_scheduled_for_a_vm_that_no_restart_waits_for():
    owner = updated_pool(most=2, annotations={MIN_READY: "60"})
    machines = machines_of(owner, 0, 1, 2, 3)
    young = [vmi(machines[0], ready_for_s=20), outdated(machines)[1], *(vmi(each) for each in machines[2:])]
    todo = plan(seen(owner, machines, young))
    assert restarted(todo) == ["web-1"]
    assert todo.requeue_after_s is None


def test_p14_a_ready_time_in_the_future_counts_as_now():
    owner = updated_pool(annotations={MIN_READY: "60"})
    machines = machines_of(owner, 0)
    ahead = seen(owner, machines, [vmi(machines[0], ready=True, ready_for_s=-3600)])
    far = seen(owner, machines, [vmi(machines[0], ready=True)], now=datetime(9998, 1, 1, tzinfo=NOW.tzinfo))
    assert count_unavailable(ahead, ahead.members, 60).next_at == NOW + timedelta(seconds=60)
    assert count_unavailable(far, far.members, 60).unavailable == 0


@pytest.mark.long
@settings(max_examples=60)
@given(st.integers(1, 5), st.integers(1, 5), st.booleans(), st.sets(st.integers(0, 4)))
def test_p14_an_update_never_has_more_unavailable_than_allowed(replicas, most, comes_up, halted):
    """After each reconciliation, KubeVirt is simulated for a while: VMs start and stop."""
    simulation = PoolSimulation(pool(replicas=replicas, spec=vm_spec(image="v1"), maxUnavailable=most))
    simulation.come_to_rest()
    for name in simulation.members():
        if int(name.rpartition("-")[2]) in halted:
            simulation.edit_vm(name, spec={"runStrategy": "Halted"})
    simulation.come_to_rest()
    template = simulation.pool["spec"]["virtualMachineTemplate"]
    simulation.change(virtualMachineTemplate={**template, "spec": vm_spec(image="v2" if comes_up else BROKEN)})
    should_run = [name for name, each in simulation.vms.items() if each["spec"]["runStrategy"] != "Halted"]
    for _ in range(40):
        simulation.run_pass()
        up = [name for name in should_run if name in simulation.vmis and is_up(simulation.vmis[name])]
        assert len(should_run) - len(up) <= most
        simulation.live_on()
    all_up = all(is_up(simulation.vmis[name]) for name in should_run)
    assert comes_up == all_up or not should_run


def is_up(document):
    conditions = document.get("status", {}).get("conditions", ())
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return ready and "deletionTimestamp" not in document["metadata"]
