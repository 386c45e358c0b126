"""Many orphans: a pass adopts a burst of them, and deletes nothing while they wait."""

from controller.replicaset.plan import plan
from controller.runtime.actions import Confirm, Create, Delete, Patch
from tests.builders import replicaset, snapshot, vmi

ORPHANS = 10_000


def test_r2_a_pass_adopts_at_most_one_burst_and_counts_all_orphans_that_match() -> None:
    orphans = [vmi(f"orphan-{number:05}") for number in range(ORPHANS)]
    result = plan(snapshot(replicaset(replicas=ORPHANS + 3), orphans, burst=250))
    patches = [action for action in result.actions if isinstance(action, Patch)]
    creates = [action for action in result.actions if isinstance(action, Create)]
    assert (len(patches), len(creates)) == (250, 3)
    assert [type(action) for action in result.actions[:1]] == [Confirm]
    assert "9750 more adoptions" in result.held


def test_r2_no_vmi_is_deleted_while_orphans_wait_for_their_adoption() -> None:
    owner = replicaset(replicas=1)
    orphans = [vmi(f"orphan-{number}") for number in range(20)]
    members = [vmi(f"member-{number}", owner=owner) for number in range(5)]
    first = plan(snapshot(owner, [*members, *orphans], burst=10))
    assert not [action for action in first.actions if isinstance(action, Delete)]
    last = plan(snapshot(owner, [*members, *orphans[:10]], burst=10))
    assert len([action for action in last.actions if isinstance(action, Delete)]) > 0
