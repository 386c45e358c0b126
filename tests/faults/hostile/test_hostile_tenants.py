"""A hostile tenant may edit everything in one namespace. Other namespaces are not harmed."""

import time
from collections import Counter
from typing import Any

import pytest

from tests.controlplane.documents import reference_to
from tests.controlplane.waits import eventually
from tests.faults.hostile.attacks import FIRST, LAST, ready
from tests.faults.hostile.cluster import (
    KINDS,
    POOL,
    SET,
    VM,
    VMI,
    HostileCluster,
    Tenant,
    owners_of,
    vm_template,
    vmi_template,
)
from tests.faults.hostile.webhook import running_webhook

pytestmark = pytest.mark.cluster


def test_two_sets_with_the_same_selector_do_not_fight(hostile: HostileCluster, tenant: Tenant) -> None:
    tenant.make_set("one", 2)
    tenant.make_set("two", 2)
    eventually(lambda: [len(tenant.children(name)) for name in ("one", "two")] == [2, 2])
    tenant.create(VMI, "orphan", {"domain": {}}, meta={"labels": {"app": "x"}})
    eventually(lambda: len(tenant.list(VMI)) == 4 and all(map(owners_of, tenant.list(VMI).values())))
    hostile.rests(tenant)
    patches = [each for each in tenant.requests() if each.verb == "patch" and each.resource == VMI]
    # A set that does not see the other set's adoption yet tries again, and the API server answers with a conflict.
    assert max(Counter(each.name for each in patches if each.code == 200).values()) <= 2


def test_references_and_names_of_another_namespace_change_nothing_there(
    hostile: HostileCluster, tenant: Tenant
) -> None:
    neighbour = hostile.neighbour
    hostile.program.settle(neighbour.name, neighbour.admin, events=True)
    calm = neighbour.get(SET, "calm")
    before = {name: item["metadata"]["uid"] for name, item in neighbour.list(VMI).items()}
    since = neighbour.plane.audit_position()
    stolen = [{**reference_to(calm), **wrong} for wrong in ({}, {"kind": KINDS[POOL]}, {"apiVersion": "v1"})]
    for number, each in enumerate(stolen):
        meta = {"labels": {"app": "x"}, "ownerReferences": [each]}
        tenant.create(VMI, f"child-{number}", {"domain": {}}, meta=meta)
        tenant.create(VM, f"calm-{number}", {"running": False, "template": vmi_template()}, meta=meta)
    victim = next(iter(before))
    template = vmi_template()
    template["metadata"] |= {"namespace": neighbour.name, "name": victim[:-5], "ownerReferences": stolen}
    tenant.make_set("calm", 1, template=template)
    disk = {"metadata": {"name": "d", "namespace": neighbour.name}, "spec": {"pvc": {}}}
    tenant.make_pool("calm", 1, virtualMachineTemplate=vm_template(dataVolumeTemplates=[disk]))
    eventually(lambda: len(tenant.children("calm")) >= 2)
    for each in (tenant, neighbour):
        hostile.program.settle(each.name, each.admin)
    assert before == {name: item["metadata"]["uid"] for name, item in neighbour.list(VMI).items()}
    assert [each for each in neighbour.requests(since) if each.verb not in ("get", "list", "watch")] == []


def test_foreign_objects_in_the_same_namespace_are_not_changed_through_the_controller(
    hostile: HostileCluster, tenant: Tenant
) -> None:
    keep = {"finalizers": ["others.example.com/keep"], "labels": {"app": "y"}}
    tenant.create(VM, "pool-0", {"running": False, "template": vmi_template()}, meta=keep)
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    owner = tenant.create("configmaps", "other")
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": owner["metadata"]["uid"]}
    tenant.create("persistentvolumeclaims", "d-0", claim, meta={"ownerReferences": [other]})
    marked = {"labels": {"vmherd.dev/pool-uid": "x"}, "ownerReferences": [{**other, "controller": True}]}
    tenant.create("controllerrevisions", "pool-1", meta=marked, revision=1, data={})
    before = {kind: tenant.list(kind) for kind in (VM, "persistentvolumeclaims", "controllerrevisions")}
    disk = {"metadata": {"name": "d"}, "spec": {"pvc": claim}}
    volumes = [{"name": "d", "dataVolume": {"name": "d"}}, {"name": "e", "persistentVolumeClaim": {"claimName": "d-0"}}]
    template = vm_template(dataVolumeTemplates=[disk])
    template["spec"]["template"]["spec"]["volumes"] = volumes
    strategy = {"proactive": {"statePreservation": "Offline"}}
    tenant.make_pool("pool", 2, virtualMachineTemplate=template, scaleInStrategy=strategy)
    eventually(lambda: len(tenant.children("pool")) == 2)
    tenant.patch(POOL, "pool", {"spec": {"replicas": 0}})
    eventually(lambda: not tenant.children("pool"))
    tenant.delete(POOL, "pool")
    eventually(lambda: "pool" not in tenant.list(POOL))
    hostile.program.settle(tenant.name, tenant.admin)
    for kind, items in before.items():
        assert items
        now = tenant.list(kind)
        assert {name: now[name]["metadata"] for name in items} == {n: i["metadata"] for n, i in items.items()}
    tenant.patch(VM, "pool-0", {"metadata": {"finalizers": None}})


ABSURD: dict[str, dict[str, Any]] = {
    "future": {"phase": "Running", "conditions": [ready("True", LAST)]},
    "past": {"phase": "Running", "conditions": [ready("False", FIRST)]},
    "phase": {"phase": "Exploded\n\x1b[31m", "nodeName": "n" * 5000},
    "twice": {"phase": "Running", "conditions": [ready(each) for each in ("True", "False", "Maybe") * 300]},
    "times": {
        "phase": "Failed",
        "phaseTransitionTimestamps": [{"phase": "Running", "phaseTransitionTimestamp": LAST}] * 50,
    },
    "nulls": {"phase": None, "conditions": [{"type": None, "status": None}], "nodeName": None, "migrationState": None},
}


def test_children_with_absurd_values_crash_nothing(hostile: HostileCluster, tenant: Tenant) -> None:
    tenant.make_set("absurd", len(ABSURD), meta={"annotations": {"vmherd.dev/replace-unready-after-seconds": "1"}})
    tenant.make_pool("pool", len(ABSURD))
    eventually(lambda: len(tenant.children("absurd")) == len(tenant.children("pool")) == len(ABSURD))
    marks = {
        "vmherd.dev/deletion-cost": "9" * 5000,
        "vmherd.dev/early-failures": '{"failures": 1e400}',
        "vmherd.dev/remove": "maybe",
    }
    for name, (case, status) in zip(tenant.children("absurd"), ABSURD.items(), strict=False):
        if name in tenant.list(VMI):
            # Each value but "false" protects, so only the VMI that may stay has one.
            protect = {"vmherd.dev/protect": "maybe"} if case == "future" else {}
            tenant.patch(VMI, name, {"metadata": {"annotations": {**marks, **protect}}, "status": status})
    for name, status in zip(tenant.children("pool"), ABSURD.values(), strict=False):
        told = {"printableStatus": "CrashLoopBackOff", "startFailure": {"consecutiveFailCount": 2**62}}
        tenant.patch(VM, f"{name}/status", {"status": {**status, **told}})
    hostile.serve_the_neighbour()
    tenant.patch(SET, "absurd", {"spec": {"replicas": 1}})
    tenant.patch(POOL, "pool", {"spec": {"replicas": 1}})
    eventually(lambda: len(tenant.children("absurd")) <= 1 and len(tenant.children("pool")) <= 1)
    hostile.rests(tenant)


def test_a_namespace_that_is_deleted_and_a_limit_range_cause_no_hot_loop(
    hostile: HostileCluster, tenant: Tenant
) -> None:
    limits = {"limits": [{"type": "Container", "max": {"memory": "1Mi"}}]}
    tenant.kubectl.apply({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small"}, "spec": limits})
    tenant.make_set("herd", 20, template=vmi_template())
    tenant.make_pool("pool", 5)
    eventually(lambda: len(tenant.children("herd")) == 20)
    since = tenant.plane.audit_position()
    tenant.kubectl("delete", "namespace", tenant.name, "--wait=false")
    hostile.serve_the_neighbour()
    hostile.rests(tenant)
    refused = [each for each in tenant.requests(since) if each.code == 403]
    assert len(refused) < 100


def test_webhooks_that_deny_hang_and_change_delay_nobody_else(hostile: HostileCluster, tenant: Tenant) -> None:
    with running_webhook() as webhook:
        with webhook.calls(tenant, "hang"):
            tenant.make_set("hung", 10)
            hostile.serve_the_neighbour()
            eventually(lambda: "FailedCreate" in tenant.reasons().get("hung", {}))
            # The creates have no answer, so the controller does not settle. The pauses between them grow.
            assert sum(each.verb == "create" and each.resource == VMI for each in tenant.requests()) < 100
        with webhook.calls(tenant, "mutate"):
            tenant.patch(SET, "hung", {"spec": {"replicas": 0}})
            tenant.make_set("changed", 1, template=vmi_template({"app": "x"}))
            eventually(lambda: tenant.reasons().get("changed", {}).get("ReleaseHeld"))
            hostile.serve_the_neighbour()
            created = len(tenant.list(VMI))
            time.sleep(2)
            assert len(tenant.list(VMI)) - created <= 2, "a VMI that loses its labels is not replaced at once"
            tenant.delete(SET, "changed")
