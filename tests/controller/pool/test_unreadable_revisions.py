"""P30: a revision over a limit cannot be read. It is never merged as if it were empty: its VMs are left as they are."""

from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from controller.pool.plan import plan
from controller.pool.rollout.steps import pending_step
from controller.pool.status import next_status
from controller.runtime.actions import Create, Delete, ThreeWayMerge
from tests.pool_builders import member, pool, revision, situation_of, snapshot, vm_spec, vms

LARGE: dict[str, Any] = vm_spec(disks=("data",))
LARGE["template"]["spec"]["networks"] = [{"name": f"n{number}"} for number in range(257)]


def seen_with(data: bytes | None, **more: Any) -> Any:
    """A pool with a valid template, whose VMs have an earlier revision with this data, or none if it is None."""
    owner, past = pool(generation=2, **more), revision(pool(spec=LARGE, generation=1), "web-1")
    earlier = past if data == b"" else replace(past, data=Raw(data or b""))
    revisions = [] if data is None else [earlier]
    return snapshot(owner, vms(owner, 0, 1, 2, revision="web-1"), revisions=revisions)


@pytest.mark.parametrize("data", [b"", b"{}", b"[", b'{"virtualMachineTemplate": 1}'])
def test_p30_a_vm_whose_revision_cannot_be_read_waits_for_its_user(data: bytes) -> None:
    seen = seen_with(data)
    todo = plan(seen)
    assert not [each for each in todo.actions if isinstance(each, ThreeWayMerge | Delete)]
    assert "its revision web-1 cannot be read" in todo.held
    assert [each.reason for each in todo.notices] == ["UpdateHeld"] * 3
    status = next_status(seen, (), plan(seen).waits)
    assert (status.updated_replicas, status.ready_replicas) == (0, 3)
    assert "web-0 waits: its revision web-1 cannot be read" in (status.problem or "")


def test_p30_the_pool_is_scaled_beside_such_vms_with_the_current_template() -> None:
    created = [each.key.name for each in plan(seen_with(b"", replicas=5)).actions if isinstance(each, Create)]
    assert created == ["web-2", "web-3", "web-4"], "the revision, and two VMs"


def test_p12_a_vm_whose_revision_is_gone_gets_the_whole_template() -> None:
    seen = seen_with(None)
    step = pending_step(situation_of(seen), member(seen, "web-0"))
    assert step is not None
    assert step.reason == ""
    assert [type(each) for each in plan(seen).actions if isinstance(each, ThreeWayMerge)]
