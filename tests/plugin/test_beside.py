"""What `plan -f` and `scale --dry-run` say of standby VMs (P32), claimed VMs (P33), and wrong annotations."""

import json
from pathlib import Path
from typing import Any

import pytest

from controller.apimachinery.conditions import Condition
from controller.kubevirt import annotations as names
from controller.kubevirt.resources import VMS
from controller.pool.members.snapshot import Snapshot
from plugin.views.forecast import forecast_lines, forecast_of
from plugin.views.pools import situation_of_pool
from plugin.views.reasons import reasons_of
from plugin.views.scaling import with_owner
from tests.builders import NOW
from tests.plugin.cluster import POOL, Cluster, Shell
from tests.pool_builders import LABELS, pool, revision, snapshot, vm, vm_spec, vmi, vms

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
        (
            {},
            {names.STANDBY: "x"},
            ["would leave:  web-2 (standby)", f"claims: {CLAIMED} 20 (vmherd.dev/max-claimed)"],
        ),
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


def test_p23_a_plan_warns_of_annotations_with_wrong_values(cluster: Cluster, shell: Shell, tmp_path: Path) -> None:
    wrong = (
        'annotation vmherd.dev/standby is "x": it must be a number from 1, or "1%" to "100%", so there is no standby VM'
    )
    cluster.put(POOL, pool(replicas=0))
    for name, exists in (("web", True), ("new", False)):
        document = json.loads(json.dumps(cluster.document(POOL, "web")))
        metadata = {"name": name, "annotations": {names.STANDBY: "x"}}
        file = tmp_path / f"{name}.json"
        file.write_text(
            json.dumps({**document, "apiVersion": POOL.api_version, "kind": POOL.kind, "metadata": metadata})
        )
        code, out, err = shell(f"plan -f {file} -o json")
        answer = json.loads(out)
        assert (code, answer["exists"], answer["warnings"], err) == (0, exists, [wrong], f"Warning: {wrong}\n")


def test_p32_a_new_pool_says_how_many_standbys_it_has_and_why_not_paused(
    cluster: Cluster, shell: Shell, tmp_path: Path
) -> None:
    owner = pool(replicas=20, annotations={names.STANDBY: "10%"})
    cluster.put(POOL, owner)
    document = {**cluster.document(POOL, "web"), "apiVersion": POOL.api_version, "kind": POOL.kind}
    document["metadata"] = {"name": "new", "annotations": {names.STANDBY: "10%", names.STANDBY_MODE: "paused"}}
    file = tmp_path / "new.json"
    file.write_text(json.dumps(document))
    code, out, err = shell(f"plan -f {file}")
    assert (code, out.endswith("it would be created with 20 VMs, and 2 on standby\n")) == (0, True)
    assert err.startswith("Warning: annotation vmherd.dev/standby-mode counts as stopped: ")
    cluster.put(VMS, vm("new-7", finalizers=()))
    code, out, _ = shell(f"plan -f {file}")
    assert "it would be created with 20 VMs, and 2 on standby, and wait: new-7 has a name of this pool" in out
