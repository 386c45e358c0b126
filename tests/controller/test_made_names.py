"""The API server accepts every name that the controller makes, for each valid name of the set or pool."""

import json
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from controller.apimachinery.names import is_subdomain
from controller.kinds import POOLS, REPLICA_SETS
from controller.pool.members.revisions import read_revisions
from controller.pool.spec.template import Template, parse_template
from controller.replicas.disruption_budget import budget_name
from controller.replicas.revisions import set_revision_name
from controller.replicaset.plan import plan
from controller.runtime.actions import Create
from informers.meta import ObjectMeta
from tests.builders import replicaset
from tests.builders import snapshot as snapshot_of_set
from tests.pool_builders import pool, snapshot

LABEL, NAME = 63, 253
HASH = "bcdfghjklm"


def names_of(*lengths: int) -> Iterator[str]:
    """Valid names of these lengths. At each place, one of them has a dot, one a hyphen, and one a letter."""
    for length in lengths:
        yield "x" * length
        for sign in (".", "-", "--"):
            for start in (1, 2, 3):
                name = f"{('x' * start + (sign + 'x') * length)[: length - 1]}x"
                if is_subdomain(name):
                    yield name


def test_the_budget_and_the_revision_of_each_set_have_a_valid_name():
    for owner in names_of(1, *range(205, NAME + 1)):
        made = [set_revision_name(owner, HASH), *(budget_name(kind.kind, owner) for kind in (POOLS, REPLICA_SETS))]
        assert [name for name in made if not is_subdomain(name)] == []


def test_the_budgets_and_the_revisions_of_two_sets_have_different_names():
    for length in range(218, NAME + 1):
        first, second = "x" * length, "x" * (length - 1) + "y"
        assert set_revision_name(first, HASH) != set_revision_name(second, HASH)
        assert budget_name(REPLICA_SETS.kind, first) != budget_name(REPLICA_SETS.kind, second)


def test_r5_each_set_makes_vmis_with_a_valid_name_and_a_valid_generate_name():
    for owner in names_of(*range(55, 64)):
        todo = plan(snapshot_of_set(replicaset(owner, replicas=1, template_name=None)))
        [create] = [each for each in todo.actions if isinstance(each, Create)]
        assert is_subdomain(create.key.name)
        assert len(create.key.name) <= LABEL
        assert is_subdomain(json.loads(create.body)["metadata"]["generateName"])


class FirstChoices:
    """The first `number` names that are asked for are taken."""

    def __init__(self, number: int) -> None:
        self._asked: set[object] = set()
        self._number = number

    def __contains__(self, name: object) -> bool:
        self._asked.add(name)
        return len(self._asked) <= self._number


@pytest.mark.parametrize("taken", [0, 1, 11])
@pytest.mark.parametrize("generation", [1, 9, 10, 99, 12_345])
def test_p11_each_pool_makes_revisions_whose_name_is_a_valid_name_and_label(taken, generation):
    template, empty = parse_template(pool().spec), snapshot(pool(), revisions=())
    assert isinstance(template, Template)
    for owner in names_of(1, *range(40, 67), NAME):
        meta = ObjectMeta(name=owner, generation=generation)
        made = replace(empty, owner=replace(empty.owner, metadata=meta), revision_names=FirstChoices(taken))
        name = read_revisions(made, template).current
        assert is_subdomain(name)
        assert len(name) <= LABEL
