"""`kubectl vmherd claim` and `release` (P33)."""

import json

import pytest

from controller.kubevirt.annotations import (
    BUSY_UNTIL,
    CLAIMED_BY,
    CLAIMED_UNTIL,
    DELETION_COST,
    DRAINING,
    STANDBY_STATE,
)
from controller.kubevirt.resources import VMS
from tests.plugin import herds
from tests.plugin.cluster import Cluster, Shell


def claimants(cluster: Cluster) -> list[str | None]:
    vms = (cluster.document(VMS, f"web-{number}") for number in range(2))
    return [(each["metadata"].get("annotations") or {}).get(CLAIMED_BY) for each in vms]


def test_each_job_claims_another_vm_and_the_same_job_gets_its_vm_again(cluster: Cluster, shell: Shell) -> None:
    herds.pool_at_rest(cluster, 2)
    assert shell.output("claim vmpool/web --for a -o name") == "virtualmachine.kubevirt.io/web-0\n"
    assert (
        shell.output("claim vmpool/web --for a")
        == "virtualmachine.kubevirt.io/web-0 claimed by a, address -, node node-1\n"
    )
    found = json.loads(shell.output("claim vmpool/web --for b --until 2h -o json"))
    assert (found["name"], found["claimedBy"]) == ("web-1", "b")
    assert cluster.document(VMS, "web-1")["metadata"]["annotations"][CLAIMED_UNTIL] == found["claimedUntil"]
    assert claimants(cluster) == ["a", "b"]


def test_a_pool_without_a_free_vm_is_named(cluster: Cluster, shell: Shell) -> None:
    herds.pool_at_rest(cluster, 0)
    assert shell.error("claim vmpool/web --for a") == (
        "error: vmpool/web has no free VM: see 'kubectl vmherd tree vmpool/web'"
    )


def test_a_pool_whose_vms_have_an_older_template_says_so(cluster: Cluster, shell: Shell) -> None:
    herds.pool_in_update(cluster)
    shell.output("claim vmpool/web --for a")
    assert "2 VMs have an older template, and only current ones are claimed" in shell.error("claim vmpool/web --for b")


def test_a_later_claim_of_the_same_job_moves_its_end(cluster: Cluster, shell: Shell) -> None:
    herds.pool_at_rest(cluster, 2)
    shell.output("claim vmpool/web --for a")
    until = json.loads(shell.output("claim vmpool/web --for a --until 1h -o json"))["claimedUntil"]
    assert json.loads(shell.output("claim vmpool/web --for a -o json"))["claimedUntil"] == until is not None
    assert claimants(cluster) == ["a", None]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (f"vmpool/web --for {'a' * 254}", "--for must be 1 to 253 characters without spaces, such as job-123"),
        ("vmpool --for a", "name one pool, such as vmpool/web"),
        ("vmirs/web --for a", "name one pool, such as vmpool/web"),
    ],
)
def test_a_wrong_claim_claims_nothing(cluster: Cluster, shell: Shell, arguments: str, said: str) -> None:
    herds.pool_at_rest(cluster, 2)
    assert said in shell.error(f"claim {arguments}", 2)
    assert cluster.writes == []


def test_claimed_vms_are_shown_beside_the_wanted_ones(cluster: Cluster, shell: Shell) -> None:
    herds.pool_at_rest(cluster, 3)
    shell.output("claim vmpool/web --for a")
    assert shell.output("why vmpool/web").startswith("vmpool/web wants 3, has 2 + 1 claimed, ")
    assert "vmpool/web 2 Scaling 2/3 + 1 claimed" in " ".join(shell.output("tree vmpool/web").split())


def test_a_vm_that_is_given_back_leaves_after_others_and_the_surplus_is_told(cluster: Cluster, shell: Shell) -> None:
    herds.pool_at_rest(cluster, 2, status={"replicas": 2})
    shell.output("claim vmpool/web --for a")
    code, _, told = shell("release vm/web-0 --keep")
    assert (code, "so surplus VMs leave. Protect those that must stay." in told) == (0, True)
    marks = cluster.document(VMS, "web-0")["metadata"]["annotations"]
    assert (marks.get(DELETION_COST), CLAIMED_BY in marks) == ("1000", False)


@pytest.mark.parametrize(("until", "stays"), [("2020-01-01T00:00:00Z", None), ("2099-01-01T00:00:00Z", True)])
def test_an_adopted_vm_stays_claimed_and_a_claim_that_has_ended_gets_no_end(
    cluster: Cluster, shell: Shell, until: str, stays: bool | None
) -> None:
    herds.pool_at_rest(cluster, 1)
    vm = cluster.document(VMS, "web-0")
    del vm["metadata"]["ownerReferences"]
    vm["metadata"]["annotations"] = {CLAIMED_BY: "job", CLAIMED_UNTIL: until}
    cluster.put(VMS, vm)
    code, _, told = shell("adopt vm/web-0 --to vmpool/web")
    assert (code, "vm/web-0 stays claimed by job: release it" in told) == (0, True)
    marks = cluster.document(VMS, "web-0")["metadata"]["annotations"]
    assert marks == {CLAIMED_BY: "job", **({CLAIMED_UNTIL: until} if stays else {})}


def test_a_claimed_vm_is_not_marked_to_go_and_drains_no_longer_if_it_is_given_back(
    cluster: Cluster, shell: Shell
) -> None:
    herds.pool_at_rest(cluster, 1)
    vm = cluster.document(VMS, "web-0")
    vm["metadata"]["annotations"] = {CLAIMED_BY: "job", DRAINING: "scale-in until 2026-08-01T12:00:00Z of uid"}
    cluster.put(VMS, vm)
    assert "vm/web-0 is claimed by job, and no scale-in takes it" in shell.error("remove vm/web-0 --scale-in")
    shell.output("release vm/web-0 --keep")
    assert cluster.document(VMS, "web-0")["metadata"]["annotations"] == {DELETION_COST: "1000"}


def test_a_standby_is_not_marked_as_busy(cluster: Cluster, shell: Shell) -> None:
    herds.pool_at_rest(cluster, 1)
    vm = cluster.document(VMS, "web-0")
    vm["metadata"]["annotations"] = {STANDBY_STATE: "resting web-0"}
    cluster.put(VMS, vm)
    assert "vm/web-0 is on standby, and does no work yet" in shell.error("busy vm/web-0 --for 1h")
    assert "vm/web-0 is on standby, and no scale-in takes it" in shell.error("remove vm/web-0 --scale-in")
    assert BUSY_UNTIL not in cluster.document(VMS, "web-0")["metadata"]["annotations"]
