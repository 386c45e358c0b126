"""The updates that the demo accepts as complete, and the updates that it rejects."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from sandbox.demo.cluster import DemoFailed
from sandbox.demo.once import EXAMPLE_MAX_UNAVAILABLE, POOL_EXAMPLE, POOL_NAME, follow_update
from sandbox.demo.status import is_complete, is_ready
from tests.sandbox.demo.objects import counts, owner, vmi

BEFORE = [vmi(f"pool-{ordinal}") for ordinal in range(4)]


def change(kind: str, vmi: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "object": vmi}


def replaced(name: str, version: int) -> list[dict[str, Any]]:
    """The watch events of a VMI that is replaced by a VMI of the new revision."""
    return [
        change("MODIFIED", vmi(name, leaving=True, version=version)),
        change("DELETED", vmi(name, leaving=True, version=version + 1)),
        change("ADDED", vmi(name, "pool-2", ready=False, version=version + 2)),
        change("MODIFIED", vmi(name, "pool-2", version=version + 3)),
    ]


def watch(*changes: dict[str, Any], at_once: int = 3) -> Callable[[str], list[dict[str, Any]]]:
    """A watch that returns the changes after a version, at most `at_once` changes in one call."""

    def changes_since(version: str) -> list[dict[str, Any]]:
        later = [each for each in changes if int(each["object"]["metadata"]["resourceVersion"]) > int(version)]
        return later[:at_once]

    return changes_since


def test_an_update_of_one_vm_after_the_other_is_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    changes = [each for ordinal in range(4) for each in replaced(f"pool-{ordinal}", 10 * ordinal + 10)]
    assert follow_update(watch(*changes), BEFORE, "1") == (16, 1)
    assert capsys.readouterr().out.splitlines() == [
        "updated 0 of 4, ready 3 of 4",
        "updated 1 of 4, ready 4 of 4",
        "updated 1 of 4, ready 3 of 4",
        "updated 2 of 4, ready 4 of 4",
        "updated 2 of 4, ready 3 of 4",
        "updated 3 of 4, ready 4 of 4",
        "updated 3 of 4, ready 3 of 4",
        "updated 4 of 4, ready 4 of 4",
    ]


def test_two_vms_that_are_unavailable_during_one_change_fail_the_demo() -> None:
    first, second = replaced("pool-0", 10), replaced("pool-1", 13)
    with pytest.raises(DemoFailed, match=r"^2 VMs were unavailable at once, but maxUnavailable allows 1$"):
        follow_update(watch(*first[:3], second[0], first[3], *second[1:], at_once=9), BEFORE, "1")


def test_an_update_that_does_not_end_fails_the_demo() -> None:
    with pytest.raises(DemoFailed, match="the update of vm-pool-web"):
        follow_update(watch(), BEFORE, "1", within_s=0.0)


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
