"""What the controller needs to be allowed: exactly that, and what each mode adds."""

from __future__ import annotations

import pytest

from controller.config.settings import Config
from controller.preflight.permissions import Permission, permissions_needed

SETS = "virtualmachineinstancereplicasets"
POOLS = "virtualmachinepools"


def test_permissions_are_what_is_needed_and_no_more():
    wanted = {(p.group, p.resource, p.subresource, p.verb) for p in permissions_needed(Config())}
    lease = ("coordination.k8s.io", "leases", "")
    assert wanted == {
        *(("kubevirt.io", SETS, "", verb) for verb in ("get", "list", "watch")),
        ("kubevirt.io", SETS, "status", "patch"),
        ("kubevirt.io", SETS, "finalizers", "update"),
        *(
            ("kubevirt.io", "virtualmachineinstances", "", verb)
            for verb in ("get", "list", "watch", "create", "patch", "delete")
        ),
        *(("pool.kubevirt.io", POOLS, "", verb) for verb in ("get", "list", "watch", "patch")),
        ("pool.kubevirt.io", POOLS, "status", "patch"),
        ("pool.kubevirt.io", POOLS, "finalizers", "update"),
        *(
            ("kubevirt.io", "virtualmachines", "", verb)
            for verb in ("get", "list", "watch", "create", "patch", "delete")
        ),
        *(("apps", "controllerrevisions", "", verb) for verb in ("get", "list", "watch", "create", "delete")),
        *(("", "persistentvolumeclaims", "", verb) for verb in ("get", "patch")),
        *(("cdi.kubevirt.io", "datavolumes", "", verb) for verb in ("get", "patch")),
        *(("", "events", "", verb) for verb in ("create", "patch")),
        *((*lease, verb) for verb in ("create", "get", "patch")),
    }


def test_permissions_name_no_wildcard_and_the_lease_alone():
    needed = permissions_needed(Config(leader_election_id="mine", leader_election_namespace="here"))
    leases = [permission for permission in needed if permission.resource == "leases"]
    assert {permission.namespace for permission in leases} == {"here"}
    assert {permission.name for permission in leases if permission.verb != "create"} == {"mine"}
    assert "*" not in str(needed)


def test_without_leader_election_no_lease_is_touched():
    assert not [p for p in permissions_needed(Config(leader_elect=False)) if p.resource == "leases"]


def test_watched_namespaces_bound_every_permission():
    needed = permissions_needed(Config(watch_namespaces=("blue", "green"), leader_elect=False))
    assert {permission.namespace for permission in needed} == {"blue", "green"}
    assert len(needed) == 2 * len(permissions_needed(Config(leader_elect=False)))


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
