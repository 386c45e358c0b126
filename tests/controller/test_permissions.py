"""What each mode needs to be allowed, beside what all of them need."""

from __future__ import annotations

import pytest

from controller.config import Config
from controller.permissions import Permission, permissions_needed


def test_a_takeover_needs_to_see_that_the_loops_of_kubevirt_rest():
    extra = set(permissions_needed(Config(mode="takeover"))) - set(permissions_needed(Config()))
    assert extra == {
        Permission("kubevirt.io", "kubevirts", "list"),
        Permission("apps", "deployments", "get", name="virt-controller"),
    }


def test_with_the_namespace_of_kubevirt_nothing_outside_of_it_needs_to_be_seen():
    config = Config(mode="takeover", kubevirt_namespace="kubevirt", watch_namespaces=("blue",), leader_elect=False)
    assert {permission.namespace for permission in permissions_needed(config)} == {"blue", "kubevirt"}


@pytest.mark.parametrize(
    "config",
    [
        Config(mode="takeover", second_writer_check=False),
        Config(mode="takeover", replicaset_group="a.b", pool_group="c.d"),
        Config(mode="standalone"),
        Config(mode="alongside", replicaset_group="vmherd.dev", pool_group="pool.vmherd.dev"),
    ],
)
def test_nobody_else_needs_to_see_kubevirt(config):
    assert not [p for p in permissions_needed(config) if p.resource in ("kubevirts", "deployments")]


def test_an_onlooker_needs_to_read_what_it_caches_and_nothing_else():
    needed = permissions_needed(Config(observe=True))
    assert {permission.verb for permission in needed} == {"list", "watch"}
    assert len({permission.resource for permission in needed}) == 5
