"""The objects on a command line: types, groups, several names, and wrong words."""

import click
import pytest

from controller.kinds import POOLS, REPLICA_SETS
from plugin.subjects import Subject, did_you_mean, parse_subjects

POOL_GROUP, SET_GROUP = POOLS.group, REPLICA_SETS.group


@pytest.mark.parametrize(
    ("words", "subjects"),
    [
        ("vmpool/web", [Subject(POOLS, POOL_GROUP, "web")]),
        ("vmpool web api", [Subject(POOLS, POOL_GROUP, "web"), Subject(POOLS, POOL_GROUP, "api")]),
        ("vmpool/web vmirs/db", [Subject(POOLS, POOL_GROUP, "web"), Subject(REPLICA_SETS, SET_GROUP, "db")]),
        ("vmpools", [Subject(POOLS, POOL_GROUP)]),
        ("vmpool,vmirs", [Subject(POOLS, POOL_GROUP), Subject(REPLICA_SETS, SET_GROUP)]),
        ("hvmpool/web", [Subject(POOLS, "pool.vmherd.dev", "web")]),
        ("hvmirs web", [Subject(REPLICA_SETS, "vmherd.dev", "web")]),
        ("virtualmachinepool/web", [Subject(POOLS, POOL_GROUP, "web")]),
        ("virtualmachinepools.pool.example.org/web", [Subject(POOLS, "pool.example.org", "web")]),
        ("virtualmachinepools.v1beta1.pool.kubevirt.io/web", [Subject(POOLS, POOL_GROUP, "web")]),
        ("VMPool/web", [Subject(POOLS, POOL_GROUP, "web")]),
    ],
)
def test_objects_are_named_as_for_kubectl(words: str, subjects: list[Subject]):
    assert list(parse_subjects(words.split())) == subjects


@pytest.mark.parametrize("words", ["", "pod/web", "vmpool/", "vmpool/a b", "vmpool ../web", "/web", ","])
def test_wrong_words_are_misuse(words: str):
    with pytest.raises(click.UsageError):
        parse_subjects(words.split())


def test_only_a_similar_name_is_suggested():
    assert did_you_mean("wbe", ["api", "web"]) == '; did you mean "web"?'
    assert did_you_mean("zzz", ["api", "web"]) == ""
    assert did_you_mean("paused", ["unsched"]) == ""
