"""R1, P1: invalid sets and pools, stored under definitions without validation."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from sandbox.controlplane import ControlPlane
from tests.cluster import Kubectl, new_namespace
from tests.controlplane.documents import FINALIZER, POOL_LABELS, SET_LABELS, finalizers_of, owner_uid, uids, vm_template
from tests.controlplane.namespace import Namespace, PoolNamespace, SetNamespace
from tests.controlplane.programs import ControllerProcess, controller_process
from tests.controlplane.waits import reacts
from tests.manifests.documents import POOLS, REPLICASETS

pytestmark = pytest.mark.cluster

GROUP = "unchecked.vmherd.dev"
KINDS = {"set": SetNamespace, "pool": PoolNamespace}


@pytest.fixture(scope="module")
def unchecked(pool_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControllerProcess]:
    """A controller for sets and pools of a test's API group. Their definitions have no validation."""
    kubectl = Kubectl(pool_plane.kubeconfig)
    names = []
    for path in (REPLICASETS, POOLS):
        definition = yaml.safe_load(path.read_text())
        spec = definition["spec"]
        names.append(f"{spec['names']['plural']}.{GROUP}")
        definition["metadata"]["name"] = names[-1]
        spec["group"] = GROUP
        spec["names"] |= {"shortNames": [f"u{spec['names']['shortNames'][0]}"], "categories": []}
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        for version in spec["versions"]:
            properties = {"spec": anything, "status": anything}
            version["schema"] = {"openAPIV3Schema": {"type": "object", "properties": properties}}
        kubectl.apply(definition)
        kubectl("wait", "--for=condition=Established", "crd", names[-1])
    flags = ("--replicaset-group", GROUP, "--pool-group", GROUP, "--leader-election-id", "unchecked")
    with controller_process(pool_plane, tmp_path_factory.mktemp("unchecked"), *flags) as program:
        yield program
        # The controller removes the finalizers of the pools.
        kubectl("delete", ",".join(names), "--all", "--all-namespaces")
    kubectl("delete", "crd", *names, "--wait=false")


@pytest.fixture(params=KINDS)
def owner(
    pool_plane: ControlPlane, unchecked: ControllerProcess, request: pytest.FixtureRequest
) -> Iterator[Namespace]:
    assert unchecked.working
    with new_namespace(pool_plane) as name:
        owner = KINDS[request.param](pool_plane, name, unchecked, group=GROUP)
        yield owner
        owner.objects.delete()


only_pools = pytest.mark.parametrize("owner", ["pool"], indirect=True)


def scale_in(**policy: Any) -> dict[str, Any]:
    return {"scaleInStrategy": {"proactive": {"selectionPolicy": policy}}}


BOTH: dict[str, dict[str, Any]] = {
    "no-selector": {"selector": None},
    "empty-selector": {"selector": {}},
    "other-labels": {"selector": {"matchLabels": {"app": "other"}}},
    "unknown-operator": {"selector": {"matchExpressions": [{"key": "app", "operator": "Near"}]}},
}
FLAWS: dict[str, dict[str, dict[str, Any]]] = {
    SetNamespace.kind: BOTH
    | {"no-template": {"template": None}, "no-labels": {"template": {"metadata": {}, "spec": {"domain": {}}}}},
    PoolNamespace.kind: BOTH
    | {
        "no-template": {"virtualMachineTemplate": None},
        "no-spec": {"virtualMachineTemplate": {"metadata": {"labels": POOL_LABELS}}},
        "no-vmi-template": {"virtualMachineTemplate": {"metadata": {"labels": POOL_LABELS}, "spec": {"running": True}}},
        "no-labels": {"virtualMachineTemplate": {"spec": vm_template()["spec"]}},
        "none-available": {"maxUnavailable": "0%"},
        "two-strategies": {"updateStrategy": {"unmanaged": {}, "opportunistic": {}}},
        "two-strategies-in": {"scaleInStrategy": {"unmanaged": {}, "proactive": {}}},
        "unknown-sort-policy": scale_in(sortPolicy="Prettiest"),
        "unknown-preservation": {"scaleInStrategy": {"opportunistic": {"statePreservation": "Maybe"}}},
        "bad-scale-in-selector": scale_in(selectors={"labelSelector": {"matchExpressions": [{"key": "a"}]}}),
        "bad-threshold": {"autohealing": {"startUpFailureThreshold": 0}},
        "bad-duration": {"autohealing": {"minFailingToStartDuration": "a while"}},
    },
}


def test_r1_p1_an_invalid_object_changes_nothing_and_is_reported_once_for_each_generation(owner: Namespace) -> None:
    flaws = FLAWS[owner.kind]
    orphans = [
        owner.make_vmi("orphan", labels={"app": "other"}),
        owner.make_vm("stray", labels={"app": "other"}, template=vm_template(running=False)),
    ]
    for name, flaw in flaws.items():
        owner.make(3, name=name, **flaw)
    for generation in (1, 2):
        owner.settle(events=True)
        assert owner.told("InvalidSpec") == dict.fromkeys(flaws, generation)
        statuses = owner.statuses().values()
        seen = {(status.get("observedGeneration"), status.get("printableStatus")) for status in statuses}
        assert seen == {(generation, "Degraded")}
        for name in flaws:
            owner.change({"spec": {"paused": False}}, name=name)
    assert uids({**owner.vmis(), **owner.vms()}) == {
        each["metadata"]["name"]: each["metadata"]["uid"] for each in orphans
    }
    assert not any(map(finalizers_of, owner.objects().values()))
    assert FINALIZER not in finalizers_of(owner.vms.get("stray"))
    assert not owner.revisions()
    assert not owner.requests("create", "delete")


def test_r1_p1_a_corrected_object_is_reconciled(owner: Namespace) -> None:
    owner.make(2, selector={"matchLabels": {"app": "other"}})
    reacts(lambda: owner.told("InvalidSpec"), what="the Event")
    labels = SET_LABELS if owner.kind == SetNamespace.kind else POOL_LABELS
    owner.change({"spec": {"selector": {"matchLabels": labels}}})
    owner.wait_ready(2)


def test_r1_p1_a_create_that_the_server_refuses_as_invalid_is_a_failure_and_no_hot_loop(owner: Namespace) -> None:
    labels = {"bad key!": "x"}
    if owner.kind == SetNamespace.kind:
        owner.make(1, template_metadata={"labels": {**SET_LABELS, **labels}})
    else:
        owner.make(3, template=vm_template(labels=labels))
    condition = reacts(lambda: owner.condition("ReplicaFailure"), what="the failure is in the status")
    assert condition["reason"] in ("FailedCreate", "FailedScaleOut")
    assert "bad key!" in condition["message"]
    owner.settle()  # the next try is not soon
    assert 0 < owner.answers("create").total() < 15
    assert not owner.created()


@only_pools
def test_p1_a_pool_that_becomes_invalid_keeps_its_vms_unchanged_but_releases_vms_that_users_delete(
    owner: PoolNamespace,
) -> None:
    pool = owner.make(3)
    before = uids(owner.wait_for_ordinals(0, 1, 2))
    owner.change({"spec": {"selector": {"matchLabels": {"app": "other"}}, "replicas": 1}})
    reacts(lambda: owner.told("InvalidSpec")["pool"] == 1)
    owner.kubectl("delete", "vm", "pool-1", "--timeout=60s")
    reacts(lambda: owner.status()["replicas"] == 2, what="the status follows")
    owner.scale(5)
    owner.settle()
    assert owner.vms().keys() == {"pool-0", "pool-2"}
    assert {owner_uid(vm) for vm in owner.vms().values()} == {pool["metadata"]["uid"]}, "no VM is released"
    assert owner.deleted() == {}
    owner.change({"spec": {"selector": {"matchLabels": POOL_LABELS}, "replicas": 3}})
    after = uids(owner.wait_for_ordinals(0, 1, 2))
    assert after["pool-0"] == before["pool-0"], "a pool that is mended goes on with the VMs that it has"


@only_pools
def test_p1_an_invalid_pool_can_be_deleted_and_releases_its_vms(owner: PoolNamespace) -> None:
    owner.make(2, scaleInStrategy={"proactive": {"statePreservation": "Offline"}})
    owner.wait_for_ordinals(0, 1)
    owner.change({"spec": {"selector": None}})
    reacts(lambda: owner.told("InvalidSpec")["pool"] == 1)
    owner.kubectl("delete", f"virtualmachinepools.{GROUP}", "pool", "--timeout=60s")
    held = [name for name, vm in owner.vms().items() if FINALIZER in finalizers_of(vm)]
    assert held == [], "the garbage collector can have them, as soon as it knows the group"
