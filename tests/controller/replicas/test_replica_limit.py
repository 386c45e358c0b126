import pytest

from controller.replicas.replica_limit import limited, plan_limit
from informers.meta import ObjectMeta

OWNER = ObjectMeta(name="huge", namespace="ns", generation=7)


@pytest.mark.parametrize(
    ("wanted", "existing", "most", "number"),
    [
        (5, 0, 10, 5),
        (11, 0, 10, 10),
        (2**31 - 1, 10, 10, 10),
        (30, 20, 10, 20),
        (15, 20, 10, 15),
        (2**31 - 1, 0, 0, 2**31 - 1),
    ],
)
def test_the_limit_stops_creates_and_deletes_nothing(wanted: int, existing: int, most: int, number: int) -> None:
    assert limited(wanted, existing, most) == number


def test_too_many_replicas_are_reported_once_for_each_generation() -> None:
    [notice] = plan_limit(OWNER, 2**31 - 1, 0, 10_000).notices
    assert notice.message == "spec.replicas is 2147483647: at most 10000 are created (--max-replicas)"
    assert (notice.reason, notice.once, notice.warning) == ("ReplicasLimited", "generation-7", True)
    assert not plan_limit(OWNER, 10_000, 0, 10_000).notices
    assert not plan_limit(OWNER, 2**31 - 1, 0, 0).notices
