"""R14: with `maxSurge`, new VMIs are created and ready before outdated VMIs are deleted."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from controller.kubevirt.annotations import BUSY_UNTIL, PROTECT, ROLLING_UPDATE, SCALE_IN, TEMPLATE_HASH
from controller.kubevirt.resources import VMIS
from controller.kubevirt.vmis import is_active, is_ready
from controller.replicaset.plan import plan
from controller.replicaset.rolling_update import parse_rollout
from controller.replicaset.template import is_updated
from controller.runtime.actions import Create, Delete
from tests.builders import LABELS, REPLICASETS, replicaset, snapshot, vmi
from tests.controller.replicaset.simulation import ReplicaSetSimulation
from tests.fakes.requests import Document, Request
from tests.strategies import template_hash_of, template_of

ONE_MORE = "maxSurge=1,maxUnavailable=0"
OLD = {**LABELS, TEMPLATE_HASH: "older"}


def surging(limits: str = ONE_MORE, *, replicas: int = 3, **annotations: str):
    return replicaset(replicas=replicas, annotations={ROLLING_UPDATE: limits, **annotations})


def old(owner, number, **changes):
    return [vmi(f"old-{n}", owner=owner, labels=OLD, **changes) for n in range(number)]


def new(owner, number, **changes):
    labels = {**LABELS, TEMPLATE_HASH: template_hash_of(owner)}
    return [vmi(f"new-{n}", owner=owner, labels=labels, **changes) for n in range(number)]


def planned(owner, *vmis) -> tuple[int, list[str]]:
    """The number of creates, and the names of the deleted VMIs."""
    actions = plan(snapshot(owner, vmis)).actions
    deleted = [each.key.name for each in actions if isinstance(each, Delete)]
    return sum(isinstance(each, Create) for each in actions), deleted


@pytest.mark.parametrize(
    ("text", "replicas", "limits"),
    [
        ("maxUnavailable=50%", 3, (1, 0)),
        ("maxSurge=2,maxUnavailable=0", 3, (0, 2)),
        ("maxUnavailable=1,maxSurge=1", 3, (1, 1)),
        (" maxSurge = 25% , maxUnavailable = 25% ", 3, (0, 1)),
        ("maxSurge=25%,maxUnavailable=25%", 10, (2, 3)),
        ("maxSurge=0%,maxUnavailable=10%", 3, (1, 0)),
        ("maxSurge=50%,maxUnavailable=0%", 0, (0, 0)),
    ],
)
def test_r14_percentages_of_the_surge_round_up_and_those_of_unavailable_vmis_round_down(text, replicas, limits):
    rollout = parse_rollout(surging(text), replicas)
    assert (rollout.max_unavailable, rollout.max_surge) == limits


@pytest.mark.parametrize(
    ("limits", "count", "actions"),
    [
        (ONE_MORE, {"old": 3}, (1, [])),
        ("maxSurge=2,maxUnavailable=0", {"old": 3}, (2, [])),
        ("maxSurge=9,maxUnavailable=0", {"old": 3}, (3, [])),
        ("maxSurge=1,maxUnavailable=1", {"old": 3}, (1, ["old-0"])),
        (ONE_MORE, {"old": 3, "new": 1}, (0, ["old-0"])),
        (ONE_MORE, {"old": 2, "new": 1}, (1, [])),
        (ONE_MORE, {"old": 1, "new": 3}, (0, ["old-0"])),
        (ONE_MORE, {"new": 3}, (0, [])),
        (ONE_MORE, {"old": 2}, (2, [])),
    ],
)
def test_r14_a_new_vmi_comes_before_an_old_one_goes(limits, count, actions):
    owner = surging(limits)
    assert planned(owner, *old(owner, count.get("old", 0)), *new(owner, count.get("new", 0))) == actions


def test_r14_an_old_vmi_stays_until_the_new_one_is_ready_but_not_if_it_is_itself_unready():
    owner = surging()
    assert planned(owner, *old(owner, 3), *new(owner, 1, ready=False)) == (0, [])
    broken = vmi("broken", owner=owner, labels=OLD, ready=False)
    assert planned(owner, *old(owner, 2), broken, *new(owner, 1, ready=False)) == (0, ["broken"])


def test_r14_p24_a_vmi_that_stays_gets_no_surge_and_one_that_became_busy_keeps_it():
    owner, busy = surging(), {BUSY_UNTIL: "2999-01-01T00:00:00Z"}
    for annotations in (busy, {PROTECT: "true"}):
        assert planned(owner, *old(owner, 3, annotations=annotations)) == (0, [])
    assert planned(owner, *old(owner, 1, annotations=busy), *new(owner, 3)) == (0, [])


def test_r14_the_limit_of_replicas_leaves_no_room_for_a_surge_and_the_set_says_so():
    owner = surging()
    full = snapshot(owner, old(owner, 3))
    todo = plan(replace(full, max_replicas=3))
    message = "3 outdated VMIs are not replaced: --max-replicas 3 leaves no room for maxSurge"
    assert todo.actions == ()
    assert message in todo.held
    assert [(each.reason, each.message) for each in todo.notices] == [("UpdateHeld", message)]
    assert [type(each) for each in plan(replace(full, max_replicas=4)).actions] == [Create]


@pytest.mark.parametrize(("limits", "left"), [(ONE_MORE, 3), ("maxSurge=1,maxUnavailable=1", 0)])
def test_r14_while_a_quota_refuses_the_surge_only_max_unavailable_goes_on(limits, left):
    owner = surging(limits)
    simulation = ReplicaSetSimulation.of(owner, old(owner, 3))
    simulation.server.quota = {VMIS: 3}
    for _ in range(20):
        simulation.run_pass()
        simulation.live_on()
    assert sum(each.metadata.name.startswith("old") for each in simulation.active) == left
    if left:
        assert "exceeded quota" in simulation.owner.status.problem
        assert "FailedCreate" in simulation.reasons
    simulation.server.quota = {VMIS: 4}
    for _ in range(20):
        simulation.run_pass()
        simulation.live_on()
    assert [each.metadata.labels[TEMPLATE_HASH] for each in simulation.active] == [template_hash_of(owner)] * 3


def test_r4a_a_template_that_fails_creates_its_surge_with_back_off():
    owner = surging()
    simulation = ReplicaSetSimulation.of(owner, old(owner, 3))
    for _ in range(12):
        simulation.run_pass()
        for each in simulation.active:
            if each.metadata.name not in ("old-0", "old-1", "old-2"):
                simulation.server.change(VMIS, each.metadata.key, {"status": {"phase": "Failed"}})
        simulation.advance(5)
    # One at the start, one at once, and one each after delays of 10 and 20 seconds.
    assert simulation.sent("create") == 4
    assert [each.metadata.name for each in simulation.active] == ["old-0", "old-1", "old-2"]


def test_r14_an_undo_deletes_the_vmi_of_the_surge_and_no_other():
    owner = surging()
    assert planned(owner, *new(owner, 3), *old(owner, 1, ready=False)) == (0, ["old-0"])


def test_r14_p25_a_set_that_keeps_its_running_vmis_creates_no_surge_beside_a_surplus():
    owner = surging(**{SCALE_IN: "finished"})
    assert planned(owner, *old(owner, 5))[0] == 0


class Watched:
    """A set in a rolling update whose limits are checked at each write of the controller."""

    def __init__(self, *, replicas: int, limits: str, burst: int) -> None:
        owner = surging(limits, replicas=replicas)
        self.simulation = ReplicaSetSimulation.of(owner, old(owner, replicas), burst=burst)
        self._catch_up = self.simulation.server.on_write
        self.simulation.server.on_write = self._on_write

    def _on_write(self, request: Request, before: Document | None) -> None:
        self._catch_up(request, before)
        if request.resource is not VMIS or request.verb not in ("create", "delete"):
            return
        wanted, active = self.simulation.owner.spec.replicas, self.simulation.active
        rollout = parse_rollout(self.simulation.owner, wanted)
        if request.verb == "create":
            assert len(active) <= wanted + rollout.max_surge
        elif is_active(gone := VMIS.decode(msgspec.json.encode(before))) and is_ready(gone):
            assert sum(map(is_ready, active)) >= wanted - rollout.max_unavailable

    def happen(self, what: str, number: int) -> None:
        simulation = self.simulation
        unready = [each for each in simulation.active if not is_ready(each)]
        match what:
            case "reconcile":
                simulation.run_pass()
                simulation.advance(number)
            case "scale":
                simulation.server.change(REPLICASETS, simulation.key, {"spec": {"replicas": number}})
            case "quota":
                simulation.server.quota = {VMIS: number + 2} if number < 6 else {}
            case "change the template":
                spec: Document = {"domain": {"devices": {}}, "hostname": f"h{number}"}
                simulation.server.change(REPLICASETS, simulation.key, {"spec": {"template": {"spec": spec}}})
            case "start" | "fail" if unready:
                phase, ready = ("Running", "True") if what == "start" else ("Failed", "False")
                at = simulation.now.isoformat()
                conditions = [{"type": "Ready", "status": ready, "lastTransitionTime": at}]
                status: Document = {"phase": phase, "nodeName": "node-1", "conditions": conditions}
                simulation.server.change(VMIS, unready[number % len(unready)].metadata.key, {"status": status})


OFTEN = {"reconcile": 6, "start": 5, "scale": 2, "fail": 1, "quota": 1, "change the template": 1}
steps = st.tuples(st.sampled_from([what for what, times in OFTEN.items() for _ in range(times)]), st.integers(0, 7))
LIMITS = (ONE_MORE, "maxSurge=2,maxUnavailable=1", "maxSurge=50%,maxUnavailable=25%", "maxUnavailable=2")


@settings(max_examples=150)
@given(st.lists(steps, max_size=40), st.integers(1, 6), st.sampled_from(LIMITS), st.sampled_from([1, 2, 250]))
def test_r14_ready_vmis_never_fall_below_the_limit_and_active_vmis_never_exceed_the_surge(
    story: list[tuple[str, int]], replicas: int, limits: str, burst: int
):
    """At each create, active <= wanted + maxSurge. At each delete of a ready VMI, ready >= wanted - maxUnavailable."""
    watched: Any = Watched(replicas=replicas, limits=limits, burst=burst)
    for what, number in story:
        watched.happen(what, number)
    simulation = watched.simulation
    simulation.server.quota = {}
    for _ in range(60):
        simulation.run_pass()
        simulation.live_on()
        simulation.advance(700)
    template = template_of(simulation.owner)
    assert len(simulation.active) == simulation.owner.spec.replicas
    assert all(is_updated(each, template) for each in simulation.active)
