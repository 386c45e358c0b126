"""The permissions that the controller needs in each mode, and no others."""

import asyncio

import pytest

from controller.access import Permission, missing_permissions
from controller.config.settings import Config
from controller.preflight.permissions import permissions_needed

SETS = "virtualmachineinstancereplicasets"
POOLS = "virtualmachinepools"
ALL = ["get", "list", "watch", "create", "patch", "delete"]


def test_the_list_has_the_needed_permissions_and_no_others():
    wanted = {(p.group, p.resource, p.subresource, p.verb) for p in permissions_needed(Config())}
    lease = ("coordination.k8s.io", "leases", "")
    assert wanted == {
        *(("kubevirt.io", SETS, "", verb) for verb in ("get", "list", "watch", "patch")),
        ("kubevirt.io", SETS, "status", "patch"),
        ("kubevirt.io", SETS, "finalizers", "update"),
        *(("kubevirt.io", "virtualmachineinstances", "", verb) for verb in ALL),
        *(("pool.kubevirt.io", POOLS, "", verb) for verb in ("get", "list", "watch", "patch")),
        ("pool.kubevirt.io", POOLS, "status", "patch"),
        ("pool.kubevirt.io", POOLS, "finalizers", "update"),
        *(("kubevirt.io", "virtualmachines", "", verb) for verb in ALL),
        *(("apps", "controllerrevisions", "", verb) for verb in ALL),
        *(("", "persistentvolumeclaims", "", verb) for verb in ("get", "list", "patch")),
        *(("cdi.kubevirt.io", "datavolumes", "", verb) for verb in ("get", "list", "patch")),
        ("subresources.kubevirt.io", "virtualmachines", "restart", "update"),
        *(("subresources.kubevirt.io", "virtualmachineinstances", each, "update") for each in ("pause", "unpause")),
        *(("", "events", "", verb) for verb in ("create", "patch")),
        *((*lease, verb) for verb in ("create", "get", "patch")),
    }


def test_permissions_have_no_wildcard_and_are_limited_to_the_lease_by_name():
    needed = permissions_needed(Config(leader_election_id="mine", leader_election_namespace="here"))
    leases = [permission for permission in needed if permission.resource == "leases"]
    assert {permission.namespace for permission in leases} == {"here"}
    assert {permission.name for permission in leases if permission.verb != "create"} == {"mine"}
    assert "*" not in str(needed)


def test_without_leader_election_no_permission_for_leases_is_needed():
    assert not [p for p in permissions_needed(Config(leader_elect=False)) if p.resource == "leases"]


def test_watched_namespaces_limit_every_permission():
    needed = permissions_needed(Config(watch_namespaces=("blue", "green"), leader_elect=False))
    assert {permission.namespace for permission in needed} == {"blue", "green"}
    assert len(needed) == 2 * len(permissions_needed(Config(leader_elect=False)))


def test_a_takeover_needs_permission_to_check_that_the_loops_of_kubevirt_are_stopped():
    extra = set(permissions_needed(Config(mode="takeover"))) - set(permissions_needed(Config()))
    assert extra == {
        Permission("kubevirt.io", "kubevirts", "list"),
        Permission("apps", "deployments", "get", name="virt-controller"),
    }


def test_with_the_namespace_of_kubevirt_that_check_needs_permissions_in_that_namespace_only():
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
def test_other_modes_need_no_permission_for_that_check(config):
    assert not [p for p in permissions_needed(config) if p.resource in ("kubevirts", "deployments")]


def test_observe_needs_permission_to_read_the_cached_resources_only():
    needed = permissions_needed(Config(observe=True))
    assert {permission.verb for permission in needed} == {"list", "watch"}
    assert len({permission.resource for permission in needed}) == 5


@pytest.mark.parametrize(
    ("flag", "resource", "writes"),
    [
        ("disruption_budgets", "poddisruptionbudgets", ALL),
        ("migrations", "virtualmachineinstancemigrations", ["get", "list", "watch", "create", "delete"]),
    ],
)
def test_only_with_its_flag_may_the_controller_write_a_kind(flag: str, resource: str, writes: list[str]):
    for flags, verbs in (({}, []), ({flag: True}, writes), ({flag: True, "observe": True}, ["list", "watch"])):
        assert [each.verb for each in permissions_needed(Config(**flags)) if each.resource == resource] == verbs


REVIEWS = {
    Permission("authentication.k8s.io", "tokenreviews", "create"),
    Permission("authorization.k8s.io", "subjectaccessreviews", "create"),
}


@pytest.mark.parametrize(
    "config", [Config(), Config(observe=True), Config(leader_elect=False), Config(watch_namespaces=("blue",))]
)
def test_only_secure_metrics_need_permission_for_token_and_access_reviews(config: Config):
    secure = Config(**{name: getattr(config, name) for name in config.__struct_fields__} | {"metrics_secure": True})
    assert set(permissions_needed(secure)) - set(permissions_needed(config)) == REVIEWS
    assert not set(permissions_needed(config)) & REVIEWS


async def test_thousands_of_questions_are_asked_twenty_at_once():
    running, most, asked = 0, 0, 0

    class Server:
        async def request(self, method: str, path: str, **_: object) -> bytes:
            nonlocal running, most, asked
            running += 1
            most, asked = max(most, running), asked + 1
            await asyncio.sleep(0)
            running -= 1
            return b'{"status": {"allowed": true}}'

    needed = permissions_needed(Config(watch_namespaces=tuple(f"team-{number}" for number in range(50))))
    assert await missing_permissions(Server(), needed) == ()
    assert asked == len(needed) > 1000
    assert most == 20
