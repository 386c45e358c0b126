"""R14, P5, P12, P13, P14, P16: the order, the requests and the limits of an update."""

from collections import Counter
from copy import deepcopy
from typing import Any

import pytest

from tests.controlplane.documents import (
    BEHAVIOR,
    HOLD,
    READY_AFTER,
    REVISION,
    data_volume_template,
    finalizers_of,
    is_leaving,
    is_observed,
    owner_uid,
    pool_document,
    uids,
    vm_template,
)
from tests.controlplane.namespace import PoolNamespace, SetNamespace
from tests.controlplane.refusals import allow
from tests.controlplane.waits import eventually, reacts
from tests.controlplane.watch import watched
from tests.integration.renewal import FIXED_SIZE, VMIS, VMS, classes_of, done, memories, restarts

pytestmark = pytest.mark.cluster

ROLLING = "vmherd.dev/rolling-update"
NOTED = "vmherd.dev/adopted-template"
DEADLINE = "vmherd.dev/progress-deadline-seconds"
SHUTDOWN_AFTER = "sim.vmherd.dev/shutdown-after"
ASCENDING = {"proactive": {"selectionPolicy": {"sortPolicy": "AscendingOrder"}}}
HALTED = {"runStrategy": "Halted"}
NEVER_READY = {BEHAVIOR: "never-ready"}
UPDATED_WITHIN_S = 60.0


def quick(**template: Any) -> dict[str, Any]:
    return vm_template(vmi_annotations={READY_AFTER: "50ms"}, **template)


def test_r14_a_set_that_is_taken_over_replaces_its_vmis_only_for_a_new_template(sets: SetNamespace) -> None:
    for name in ("one", "two"):
        sets.make_vmi(name)
    sets.make(2, annotations={ROLLING: "maxUnavailable=2"})
    reacts(lambda: NOTED in sets.read()["metadata"].get("annotations", {}), what="the template is noted")
    reacts(lambda: sets.status().get("updatedReplicas") == 2)
    sets.settle()
    assert sets.alive().keys() == {"one", "two"}, "the template is unchanged"
    sets.change_memory("128M")
    reacts(lambda: sets.status().get("updatedReplicas") == 2 and not {"one", "two"} & sets.alive().keys())


def test_r14_a_surge_waits_for_a_quota_and_deletes_no_vmi_before(pools: PoolNamespace) -> None:
    sets = pools.sets
    sets.make(2, annotations={ROLLING: "maxSurge=1,maxUnavailable=0"})
    sets.wait_ready(2)
    before = uids(sets.alive())
    allow(sets, 2)
    sets.change_memory("128M")
    reacts(lambda: "exceeded quota" in sets.status().get("problem", ""), what="PROBLEM names the quota")
    assert (uids(sets.alive()), sets.requests("delete")) == (before, [])
    reacts(lambda: sets.reasons()["FailedCreate"], what="an Event")
    allow(sets, 3)
    sets.wait_until_updated(2)
    sets.wait_ready(2)
    assert not set(before.values()) & set(uids(sets.alive()).values())


POWER: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "strategy": ({"runStrategy": "Always"}, {"runStrategy": "Halted"}),
    "running": ({"running": True}, {"running": False}),
    "switched": ({"running": True}, {"running": None, "runStrategy": "Halted"}),
}


def power_of(vm: dict[str, Any]) -> dict[str, Any]:
    return {field: vm["spec"].get(field) for field in ("runStrategy", "running")}


def test_p12_a_vm_that_its_user_stopped_is_brought_up_to_date_and_not_started(pools: PoolNamespace) -> None:
    for name, (template, _) in POWER.items():
        pools.make(2, name=name, template=vm_template(**template), maxUnavailable=1)
    pools.wait_for_vms(*(f"{name}-{ordinal}" for name in POWER for ordinal in (0, 1)))
    stopped = {f"{name}-0" for name in POWER}
    for name, (_, stop) in POWER.items():
        pools.vms.change(f"{name}-0", {"spec": stop})
    eventually(lambda: not stopped & pools.vmis().keys(), within_s=20, what="the VMs are stopped")
    power = {name: power_of(pools.vms.get(name)) for name in stopped}
    for name, (template, _) in POWER.items():
        pools.change_template(vm_template(memory="128M", **template), name=name)
    for name in POWER:
        pools.wait_until_updated(2, name=name)
    # The simulator has seen the changes of the stopped VMs before it starts the others again.
    new = {f"{name}-1": "128M" for name in POWER}
    eventually(lambda: memories(pools.vmis()).items() >= new.items(), what="the others have the new template")
    assert not stopped & pools.vmis().keys(), "no VM is started"
    vms = pools.vms()
    assert {name: power_of(vms[name]) for name in stopped} == power
    assert {memories(vms)[name] for name in stopped} == {"128M"}


def test_p12_each_outdated_vm_gets_one_patch_and_other_vms_get_none(pools: PoolNamespace) -> None:
    pools.make(10, template=vm_template(**HALTED))
    pools.wait_until_updated(10)
    position = pools.plane.audit_position()
    pools.change_memory("128M")
    pools.wait_until_updated(10)
    patched = [record.name for record in done(pools, "patch", VMS, since=position)]
    assert sorted(patched) == [f"pool-{ordinal}" for ordinal in range(10)]
    assert pools.requests("update", since=position) == []
    position = pools.plane.audit_position()
    pools.change({"spec": {"maxUnavailable": 3}})
    pools.settle()
    assert done(pools, "patch", VMS, since=position) == []


def plain() -> dict[str, Any]:
    """A template as a person writes it."""
    template = vm_template(disks=("root",))
    machine = template["spec"]["template"]["spec"]
    machine["domain"] = {"devices": machine["domain"]["devices"], "memory": {"guest": "1024Mi"}}
    template["spec"]["dataVolumeTemplates"] = [data_volume_template("root", size="1024Mi")]
    return template


def as_go_writes(template: dict[str, Any]) -> dict[str, Any]:
    """The same template after a current Go client has read and written it."""
    written = deepcopy(template)
    domain = written["spec"]["template"]["spec"]["domain"]
    domain |= {"resources": {}, "memory": {"guest": "1Gi"}}
    written["spec"]["dataVolumeTemplates"] = [data_volume_template("root", size="1Gi")]
    return written


def test_p12_kubectl_apply_and_a_go_client_may_take_turns(pools: PoolNamespace) -> None:
    """A user applies a manifest. A Go client writes the whole object. The user applies the manifest again."""
    manifest = pool_document(2, template=plain())
    pools.kubectl("apply", "-f", "-", stdin=manifest)
    pools.wait_ready(2)
    pools.settle(events=True)
    position = pools.plane.audit_position()
    pools.change_template(as_go_writes(plain()))
    reacts(lambda: is_observed(pools.read()))
    again = manifest | {"metadata": {"name": "pool", "labels": {"applied": "again"}}}
    pools.kubectl("apply", "-f", "-", stdin=again)
    pools.settle()
    assert pools.read()["metadata"]["generation"] == 3, "the server took both for changes"
    written = pools.requests("create", "update", "patch", "delete", since=position)
    assert {(each.resource, each.subresource) for each in written} == {("virtualmachinepools", "status")}


def test_p13_if_the_vmi_template_is_the_same_only_the_label_of_the_vmi_changes(pools: PoolNamespace) -> None:
    pools.make(4, template=vm_template(disks=("root",)), maxUnavailable=1)
    pools.wait_ready(4)
    running, volumes = pools.vmis(), uids(pools.data_volumes())
    position = pools.plane.audit_position()
    after = vm_template(labels={"tier": "web"}, disks=("root",), runStrategy="RerunOnFailure")
    after["metadata"]["annotations"] = {"note": "new"}
    with watched(pools, pools.vmis) as seen:
        pools.change_template(after)
        pools.wait_ready(4)
    assert seen.least_ready() == {"pool": 4}
    vmis = pools.vmis()
    assert uids(vmis) == uids(running)
    assert {vm["spec"]["runStrategy"] for vm in pools.vms().values()} == {"RerunOnFailure"}
    for name, vmi in vmis.items():
        assert vmi["spec"] == running[name]["spec"]
        assert vmi["metadata"]["annotations"] == running[name]["metadata"]["annotations"]
        assert vmi["metadata"]["labels"] == running[name]["metadata"]["labels"] | {REVISION: "pool-2"}
    assert sorted(each.name for each in done(pools, "patch", VMIS, since=position)) == sorted(vmis)
    assert pools.requests("delete", since=position) == []
    assert uids(pools.data_volumes()) == volumes


def test_p13_if_the_disks_differ_the_vm_is_recreated_with_new_disks(pools: PoolNamespace) -> None:
    pools.make(2, template=quick(disks=("root",)), maxUnavailable=1)
    pools.wait_ready(2)
    kinds = (pools.vms, pools.vmis, pools.data_volumes, pools.claims)
    before = [uids(objects()) for objects in kinds]
    for name in pools.data_volumes():
        pools.data_volumes.set_finalizers(name, HOLD)
    position = pools.plane.audit_position()
    template = quick(disks=("root",))
    template["spec"]["dataVolumeTemplates"] = [data_volume_template("root", storageClassName=FIXED_SIZE)]
    pools.change_template(template)

    def leaving() -> list[str]:
        return [name for name, vm in pools.vms().items() if is_leaving(vm)]

    (first,) = reacts(leaving, what="one VM is deleted")
    assert "foregroundDeletion" in finalizers_of(pools.vms.get(first))
    pools.settle()
    assert (leaving(), uids(pools.vms())) == ([first], before[0]), "the VM waits for the removal of its disk"
    for name in pools.data_volumes():
        pools.data_volumes.set_finalizers(name)
    pools.wait_ready(2, within_s=UPDATED_WITHIN_S)
    for old, objects in zip(before, kinds, strict=True):
        new = uids(objects())
        assert new.keys() == old.keys()
        assert not set(new.values()) & set(old.values()), "nothing of it is used again"
    owners = uids(pools.vms())
    disks = {name: owner_uid(volume) for name, volume in pools.data_volumes().items()}
    assert disks == {"root-0": owners["pool-0"], "root-1": owners["pool-1"]}
    assert set(classes_of(pools).values()) == {FIXED_SIZE}
    assert pools.deleted(position) == {"pool-0": 1, "pool-1": 1}
    assert restarts(pools, since=position) == []


def test_p13_vms_that_kubevirt_does_not_start_again_are_restarted_through_the_subresource(pools: PoolNamespace) -> None:
    pools.make(2, template=quick(runStrategy="RerunOnFailure"), maxUnavailable=1)
    pools.wait_ready(2)
    position = pools.plane.audit_position()
    with watched(pools, pools.vmis) as seen:
        pools.change_memory("128M")
        pools.wait_ready(2, within_s=UPDATED_WITHIN_S)
    assert set(memories(pools.vmis()).values()) == {"128M"}
    assert seen.least_ready() == {"pool": 1}
    assert restarts(pools, since=position) == []
    sent = [record.name for record in pools.requests("update", since=position)]
    assert sorted(sent) == ["pool-0", "pool-1"], "one request for each VM"


ALLOWED: dict[str, tuple[int, Any]] = {
    "number": (6, 2),
    "rounded": (5, "50%"),
    "least": (3, "1%"),
    "default": (4, None),
}
LEAST = {"number": 4, "rounded": 3, "least": 2, "default": 0}


def test_p14_no_more_vms_are_unavailable_than_the_number_or_the_percentage_allows(pools: PoolNamespace) -> None:
    # A guest with a slow shutdown counts as unavailable during the shutdown, although its VMI still exists.
    # The shutdown is longer than the time between the first and the last of the deletes that may run together.
    template = vm_template(vmi_annotations={SHUTDOWN_AFTER: "1s"})
    for name, (replicas, allowed) in ALLOWED.items():
        pools.make(replicas, name=name, template=template, maxUnavailable=allowed)
    for name, (replicas, _) in ALLOWED.items():
        pools.wait_ready(replicas, name=name)
    position = pools.plane.audit_position()
    with watched(pools, pools.vmis) as seen:
        for name in ALLOWED:
            pools.change_memory("128M", name=name)
        for name, (replicas, _) in ALLOWED.items():
            pools.wait_ready(replicas, name=name, within_s=UPDATED_WITHIN_S)
    assert seen.least_ready() == LEAST, "all that may be missed are, and no more"
    for name, (replicas, _) in ALLOWED.items():
        assert Counter(restarts(pools, since=position, pool=name)) == {f"{name}-{each}": 1 for each in range(replicas)}


def test_p14_a_template_that_does_not_come_up_stops_its_own_rollout_and_is_reported_once(pools: PoolNamespace) -> None:
    pools.make(6, maxUnavailable=2, updateStrategy=ASCENDING, annotations={DEADLINE: "1"})
    pools.wait_ready(6)
    running = uids(pools.vmis())
    position = pools.plane.audit_position()
    pools.change_template(vm_template(memory="128M", vmi_annotations=NEVER_READY))
    eventually(lambda: pools.told("RolloutStalled")["pool"] == 1, within_s=20, what="an Event reports the stall")
    reacts(lambda: pools.status().get("readyReplicas") == 4, what="two VMs do not come up")
    pools.change({"metadata": {"annotations": {"note": "touched"}}, "spec": {"autohealing": {}}})
    pools.settle(events=True)
    left = {name: uid for name, uid in running.items() if name not in ("pool-0", "pool-1")}
    assert left.items() <= uids(pools.vmis()).items()
    assert sorted(restarts(pools, since=position)) == ["pool-0", "pool-1"]
    assert pools.told("RolloutStalled") == {"pool": 1}, "it is told once"
    pools.change({"metadata": {"annotations": {DEADLINE: None}}})

    with watched(pools, pools.vmis) as seen:
        pools.change_template(vm_template(memory="256M"))
        pools.wait_ready(6, within_s=UPDATED_WITHIN_S)
    assert seen.least_ready() == {"pool": 4}, "the way back costs nothing"
    assert set(restarts(pools, since=position)[2:4]) == {"pool-0", "pool-1"}
    assert set(memories(pools.vmis()).values()) == {"256M"}
    assert pools.told("RolloutStalled") == {"pool": 1}


def test_p16_a_new_pool_gets_its_finalizer_first_then_revision_vms_and_status(pools: PoolNamespace) -> None:
    pools.make(5)
    pools.wait_ready(5)
    written = sorted(pools.requests("create", "patch"), key=lambda each: each.request_received_timestamp)
    first = list(dict.fromkeys((each.resource, each.subresource) for each in written))
    assert first == [
        ("virtualmachinepools", ""),
        ("controllerrevisions", ""),
        (VMS, ""),
        ("virtualmachinepools", "status"),
    ]
    assert Counter(each.code for each in pools.requests("create")) == {201: 6}, "nothing is asked for twice"
