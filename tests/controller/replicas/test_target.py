"""The number of members that a set or pool should have now, from its parts."""

from typing import Any

import pytest

from controller.kubevirt.limits import Template
from controller.pool.plan import plan as plan_of_pool
from controller.pool.status import next_status as status_of_pool
from controller.replicas.target import Target
from controller.replicaset.plan import plan as plan_of_set
from controller.replicaset.status import next_status as status_of_set
from tests import builders, pool_builders


@pytest.mark.parametrize(
    ("parts", "numbers"),
    [
        ({"replicas": 3}, (3, 3, 3)),
        ({"replicas": 3, "surge": 1}, (4, 3, 3)),
        ({"replicas": 3, "substitutes": 2}, (5, 3, 3)),
        ({"replicas": 9, "limit": 5}, (5, 5, 5)),
        ({"replicas": 9, "limit": 5, "existing": 7}, (7, 7, 7)),
        ({"replicas": 3, "young": 1, "existing": 2}, (2, 2, 3)),
        ({"replicas": 3, "young": 1, "existing": 3}, (3, 3, 3)),
        ({"replicas": 0, "young": 2, "existing": 1}, (0, 0, 0)),
    ],
)
def test_the_number_is_the_sum_of_its_parts_within_the_limit(parts: dict[str, int], numbers: tuple[int, int, int]):
    target = Target(template=Template(), **parts)
    assert (target.wanted, target.regular, target.kept) == numbers


@pytest.mark.parametrize("age_s", [5, 3600])
def test_a_pool_is_scaling_while_the_plan_releases_a_vm_or_waits_for_it(age_s: float):
    owner = pool_builders.pool(replicas=2)
    others = pool_builders.vms(owner, 0, 1)
    leaving = pool_builders.vm("web-2", owner=owner, labels={"app": "other"}, age_s=age_s)
    seen = pool_builders.snapshot(owner, [*others, leaving])
    todo = plan_of_pool(seen)
    assert bool(todo.actions) is (age_s > 30)
    assert ("releases wait" in todo.held) is (age_s < 30)
    assert status_of_pool(seen, ()).printable_status == "Scaling"
    assert status_of_pool(pool_builders.snapshot(owner, others), ()).printable_status == "Running"


@pytest.mark.parametrize("orphan", [{"owner": None}, {"labels": {"myvmi": "other"}, "age_s": 3600}])
def test_a_set_is_scaling_while_the_plan_adopts_or_releases_a_vmi(orphan: dict[str, Any]):
    owner = builders.replicaset(replicas=2)
    number = 1 if "owner" in orphan else 2
    own = [builders.vmi(f"vm-{each}", owner=owner) for each in range(number)]
    other = builders.vmi("other", **{"owner": owner, **orphan})
    seen = builders.snapshot(owner, [*own, other])
    assert plan_of_set(seen).actions
    assert status_of_set(seen, ()).printable_status == "Scaling"
