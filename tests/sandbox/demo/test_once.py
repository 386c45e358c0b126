"""The updates that the demo accepts as complete, and the updates that it rejects."""

from typing import Any

import pytest
import yaml

from sandbox.demo.cluster import DemoFailed
from sandbox.demo.experiments import EXAMPLE_MAX_UNAVAILABLE, POOL_EXAMPLE, POOL_NAME
from sandbox.demo.once import follow_update
from sandbox.demo.status import is_complete, is_ready
from sandbox.demo.tables import View
from tests.sandbox.demo.objects import counts, owner, set_vmi, vm, vmi

POOL = owner(POOL_NAME, "u-pool", desired=4, **counts(4))
VMS = tuple(vm(f"pool-{ordinal}") for ordinal in range(4))


def seen(*vmis: dict[str, Any], **pool: int) -> View:
    """What the demo sees during an update to the revision pool-2."""
    return View(owners=({**POOL, "status": {**POOL["status"], **pool}},), vms=VMS, vmis=(set_vmi("test"), *vmis))


OLD = tuple(vmi(f"pool-{ordinal}") for ordinal in range(4))
NEW = tuple(vmi(f"pool-{ordinal}", "pool-2") for ordinal in range(4))


@pytest.mark.parametrize(
    ("now", "line", "is_over"),
    [
        (seen(*OLD), "updated 0 of 4, ready 4 of 4", False),
        (seen(vmi("pool-0", leaving=True), *OLD[1:]), "updated 0 of 4, ready 3 of 4", False),
        (seen(vmi("pool-0", "pool-2", ready=False), *OLD[1:]), "updated 0 of 4, ready 3 of 4", False),
        (seen(*NEW[:2], *OLD[2:]), "updated 2 of 4, ready 4 of 4", False),
        (seen(*NEW, updatedReplicas=3), "updated 4 of 4, ready 4 of 4", False),
        (seen(*NEW), "updated 4 of 4, ready 4 of 4", True),
    ],
)
def test_an_update_is_over_when_all_vms_and_the_status_are_updated(now: View, line: str, is_over: bool) -> None:
    assert follow_update(seen(*OLD), now) == (line, is_over)


def test_two_vms_that_are_unavailable_at_once_fail_the_demo() -> None:
    with pytest.raises(DemoFailed, match=r"^2 VMs were unavailable at once, but maxUnavailable allows 1$"):
        follow_update(seen(*OLD), seen(vmi("pool-0", leaving=True), vmi("pool-1", "pool-2", ready=False), *OLD[2:]))


def test_the_example_allows_as_many_unavailable_as_the_demo_does() -> None:
    pool = yaml.safe_load(POOL_EXAMPLE.read_text())
    percentage = int(pool["spec"]["maxUnavailable"].removesuffix("%"))
    assert pool["spec"]["replicas"] * percentage // 100 == EXAMPLE_MAX_UNAVAILABLE
    assert pool["metadata"]["name"] == POOL_NAME
    assert pool["spec"]["autohealing"]["startUpFailureThreshold"] == 3


def test_a_vmi_that_is_being_deleted_is_not_ready_whatever_its_status_says() -> None:
    assert is_ready(vmi("pool-0"))
    assert not is_ready(vmi("pool-0", leaving=True))
    assert not is_ready(vmi("pool-0", ready=False))


@pytest.mark.parametrize(
    ("subject", "rests"),
    [
        (owner("web", "u", **counts(3)), True),
        (owner("web", "u", desired=0), True),
        (owner("web", "u"), False),
        (owner("web", "u", **counts(2)), False),
        (owner("web", "u", **{**counts(3), "readyReplicas": 2}), False),
        (owner("web", "u", **{**counts(3), "updatedReplicas": 2}), False),
        (owner("web", "u", generation=2, **{**counts(3), "observedGeneration": 1}), False),
    ],
)
def test_an_owner_is_at_rest_if_all_counts_match_the_observed_spec(subject: dict[str, Any], rests: bool) -> None:
    assert is_complete(subject) is rests
