"""What `plan -f` and `scale --dry-run` say of standby VMs (P32), claimed VMs (P33), and wrong annotations."""

from typing import Any

import pytest
from msgspec.structs import replace

from controller.apimachinery.conditions import Condition
from controller.kubevirt import annotations as names
from controller.pool.members.snapshot import Snapshot
from plugin.views.forecast import forecast_lines, forecast_of
from plugin.views.listing import why_of_member
from plugin.views.pools import situation_of_pool
from plugin.views.reasons import reasons_of
from plugin.views.scaling import with_owner
from tests.builders import NOW
from tests.pool_builders import LABELS, pool, revision, snapshot, vm_spec, vmi, vms

CLAIM, RESTS = "claimed by job", "standby, resting"
CLAIMED = "2 VMs claimed, and left alone; others take the place of at most"


def herd() -> Snapshot:
    """Two VMs run, one rests, and two are claimed."""
    owner = pool(replicas=2, annotations={names.STANDBY: "1"})
    running = vms(owner, 0, 1)
    halted = {"spec": vm_spec(run_strategy="Halted"), "ready": False, "printable": "Stopped"}
    resting = vms(owner, 2, annotations={names.STANDBY_STATE: "resting"}, **halted)
    claimed = vms(owner, 3, 4, annotations={names.CLAIMED_BY: "job"})
    vmis = [vmi(each) for each in (*running, *claimed)]
    return snapshot(owner, (*running, *resting, *claimed), vmis=vmis, revisions=[revision(owner, "web-1")], now=NOW)


@pytest.mark.parametrize(
    ("fields", "annotations", "lines"),
    [
        ({}, {}, ["standby: 1 VM beside the 2 wanted rests stopped", f"claims: {CLAIMED} 20 (vmherd.dev/max-claimed)"]),
        (
            {"replicas": 4},
            {names.MAX_CLAIMED: "1"},
            [
                "would wake:   web-2",
                "standby: 1 VM beside the 3 wanted rests stopped; 1 would be created, when no wanted VM is missing",
                f"claims: {CLAIMED} 1 (vmherd.dev/max-claimed)",
            ],
        ),
        (
            {"replicas": 1},
            {names.STANDBY: "2", names.REUSE: "true"},
            [
                "would rest:   web-1",
                "standby: 2 VMs beside the 1 wanted rest stopped",
                f"claims: {CLAIMED} 10 (vmherd.dev/max-claimed)",
            ],
        ),
        ({}, {names.STANDBY: "x"}, ["would leave:  web-2 (standby)", f"claims: {CLAIMED} 20 (vmherd.dev/max-claimed)"]),
        (
            {"spec": vm_spec(labels={**LABELS, names.IN_SERVICE: "true"})},
            {names.STANDBY_MODE: "paused"},
            [
                "standby: 1 VM beside the 2 wanted rests paused; 1 is outdated, and would be made again",
                f"claims: {CLAIMED} 20 (vmherd.dev/max-claimed)",
            ],
        ),
        (
            {"spec": vm_spec(image="v2")},
            {},
            [
                "standby: 1 VM beside the 2 wanted rests stopped; 1 is outdated, and would be made again",
                f"claims: {CLAIMED} 20 (vmherd.dev/max-claimed)",
            ],
        ),
    ],
)
def test_p32_a_forecast_says_what_happens_to_standbys_and_which_claims_are_replaced(
    fields: Any, annotations: Any, lines: list[str]
):
    new = pool(**{"replicas": 2, "annotations": {names.STANDBY: "1", **annotations}, **fields})
    shown = forecast_lines(forecast_of(with_owner(herd(), new)))
    assert [each for each in shown if each.startswith(("would", "standby", "claims"))] == lines


def test_p32_a_forecast_names_a_vm_that_rests_although_an_old_mark_of_it_is_removed():
    owner = pool(replicas=1, annotations={names.STANDBY: "1", names.REUSE: "true"})
    members = (*vms(owner, 0), *vms(owner, 1, annotations={names.DRAINED: "true"}))
    seen = snapshot(owner, members, vmis=[*map(vmi, members)], revisions=[revision(owner, "web-1")], now=NOW)
    assert "would rest:   web-1" in forecast_lines(forecast_of(seen))


def test_p32_a_paused_standby_is_no_cause():
    owner = pool(replicas=1, annotations={names.STANDBY: "1"})
    running, resting = vms(owner, 0), vms(owner, 1, ready=False)
    paused = vmi(resting[0], ready=False, conditions=[Condition(type="Paused", status="True")])
    mark = {names.STANDBY_STATE: f"paused {paused.metadata.uid}"}
    resting = vms(owner, 1, ready=False, annotations=mark)
    seen = snapshot(owner, (*running, *resting), vmis=[vmi(running[0]), paused], revisions=[revision(owner, "web-1")])
    assert [each for each in reasons_of(situation_of_pool(seen), None, NOW) if each.topic == "cause"] == []


def test_p33_a_claimed_vm_does_not_wait_for_the_update_of_others():
    new = pool(replicas=2, spec=vm_spec(image="v2"), annotations={names.STANDBY: "1"})
    shown = situation_of_pool(replace(with_owner(herd(), new), revisions=[revision(new, "web-2", number=2)]))
    whys = {each.name: why_of_member(replace(shown, blockers=("web-0",)), each) for each in shown.members}
    assert whys == {"web-0": "", "web-1": "waits for web-0", "web-2": RESTS, "web-3": CLAIM, "web-4": CLAIM}
