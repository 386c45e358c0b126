"""P12: VMs are updated to the present template, and keep the settings that the template did not change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.controller_process import (
    PATIENT_LEASE,
    ReplicaSetNamespace,
    controller_process,
    eventually,
    stays,
)
from tests.integration.pool_namespace import (
    HOLD,
    POOL_LABELS,
    REVISION,
    PoolNamespace,
    finalizers_of,
    uids,
    vm_template,
)
from tests.integration.renewal import VMS, annotations_of, done, revision_of, template_revision_of, vm_memory_of

pytestmark = pytest.mark.cluster

HALTED = {"runStrategy": "Halted"}
FIRMWARE = {"uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223", "serial": "e4686d2c"}
HOT_DISK = {"name": "hot", "disk": {"bus": "scsi"}, "serial": "hot-1"}
HOT_VOLUME = {"name": "hot", "dataVolume": {"name": "hot", "hotpluggable": True}}
NETWORKS = [{"name": "default", "pod": {}}]


def with_interface(template: dict[str, Any], **interface: Any) -> dict[str, Any]:
    spec = template["spec"]["template"]["spec"]
    spec["networks"] = NETWORKS
    spec["domain"]["devices"]["interfaces"] = [{"name": "default", "masquerade": {}, **interface}]
    return template


def steps(pools: PoolNamespace, name: str, *changes: tuple[str, Any]) -> None:
    """Add values to a VM's VMI template, as KubeVirt and its users do."""
    pools.change_vm_by_steps(name, *((f"/spec/template/spec/{path}", value) for path, value in changes))


def halted_by_user(pools: PoolNamespace, name: str, **power: Any) -> None:
    pools.change_vm(name, {"spec": power or HALTED})
    eventually(lambda: name not in pools.vmis(), what=f"{name} is stopped")


def test_p12_labels_annotations_and_the_indexed_spec_are_updated_to_the_template(pools: PoolNamespace) -> None:
    before = with_interface(vm_template(labels={"tier": "a", "goes": "x"}, disks=("root",), **HALTED))
    before["metadata"]["annotations"] = {"note": "old", "drop": "me"}
    pools.make_pool(2, template=before)
    made = uids(pools.wait_for_ordinals(0, 1, ready=False))
    after = vm_template(labels={"tier": "b", "comes": "y"}, vmi_labels={"in": "side"}, disks=("root", "data"), **HALTED)
    after["metadata"]["annotations"] = {"note": "new"}
    pool = pools.change_template(with_interface(after, model="virtio"))
    pools.wait_until_updated(2)
    revision = f"pool-{pool['metadata']['generation']}"
    vms = pools.vms()
    assert uids(vms) == made, "a stopped VM is never recreated"
    for ordinal in (0, 1):
        vm = vms[f"pool-{ordinal}"]
        assert vm["metadata"]["labels"] == {**POOL_LABELS, "tier": "b", "comes": "y", REVISION: revision}
        assert annotations_of(vm["metadata"]) == {"note": "new"}
        assert template_revision_of(vm) == revision
        disks = [disk["metadata"]["name"] for disk in vm["spec"]["dataVolumeTemplates"]]
        assert disks == [f"root-{ordinal}", f"data-{ordinal}"]
    # An unchanged VM is exactly like the template, except for the indexed fields.
    wanted, found = pools.specs_exactly()
    for spec in (wanted, *found):
        del spec["dataVolumeTemplates"], spec["template"]["spec"]["volumes"]
        spec["template"]["metadata"]["labels"].pop(REVISION, None)
    assert found == [wanted] * 2


def test_p12_values_that_the_template_did_not_change_stay_in_the_vm(pools: PoolNamespace) -> None:
    pools.make_pool(1, template=with_interface(vm_template(disks=("root",), **HALTED)))
    before = pools.wait_for_ordinals(0, ready=False)["pool-0"]
    pools.hold_vm("pool-0")
    foreign = {"labels": {"backup": "daily"}, "annotations": {"note": "mine"}}
    pools.change_vm("pool-0", {"metadata": foreign, "spec": {"template": {"metadata": foreign}}})
    steps(
        pools,
        "pool-0",
        ("domain/firmware", FIRMWARE),
        ("domain/devices/interfaces/0/macAddress", "02:00:00:00:00:01"),
        ("domain/devices/disks/-", HOT_DISK),
        ("volumes/-", HOT_VOLUME),
        ("volumes/0/dataVolume/name", "root-0-restored"),
        ("nodeSelector", {"zone": "a"}),
    )
    changed = with_interface(vm_template(disks=("root", "data"), memory="128Mi", **HALTED), model="virtio")
    pools.change_template(changed)
    pools.wait_until_updated(1)
    vm = pools.vm("pool-0")
    machine = vm["spec"]["template"]["spec"]
    assert machine["domain"]["firmware"] == FIRMWARE
    interface = {"name": "default", "masquerade": {}, "macAddress": "02:00:00:00:00:01", "model": "virtio"}
    assert machine["domain"]["devices"]["interfaces"] == [interface]
    disks = {disk["name"]: disk for disk in machine["domain"]["devices"]["disks"]}
    assert disks.keys() == {"root", "data", "hot"}
    assert disks["hot"] == HOT_DISK
    volumes = {volume["name"]: volume for volume in machine["volumes"]}
    assert volumes["hot"] == HOT_VOLUME
    assert volumes["root"] == {"name": "root", "dataVolume": {"name": "root-0-restored"}}
    assert volumes["data"] == {"name": "data", "dataVolume": {"name": "data-0"}}
    assert machine["nodeSelector"] == {"zone": "a"}
    assert vm_memory_of(vm) == "128Mi"
    for metadata in (vm["metadata"], vm["spec"]["template"]["metadata"]):
        assert metadata["labels"]["backup"] == "daily"
        assert annotations_of(metadata) == {"note": "mine"}
    kept = [*finalizers_of(before), HOLD]
    assert [each for each in finalizers_of(vm) if each in kept] == kept, "the VM controller may have added its own"
    assert vm["metadata"]["ownerReferences"] == before["metadata"]["ownerReferences"]
    pools.let_vm_go("pool-0")


POWER: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "strategy": ({"runStrategy": "Always"}, {"runStrategy": "Halted"}),
    "running": ({"running": True}, {"running": False}),
    "switched": ({"running": True}, {"running": None, "runStrategy": "Halted"}),
}


def test_p12_a_vm_that_its_user_stopped_is_brought_up_to_date_and_not_started(pools: PoolNamespace) -> None:
    for name, (template, _) in POWER.items():
        pools.make_pool(2, name=name, template=vm_template(**template), maxUnavailable=1)
    pools.wait_for_vms(*(f"{name}-{ordinal}" for name in POWER for ordinal in (0, 1)))
    for name, (_, stop) in POWER.items():
        halted_by_user(pools, f"{name}-0", **stop)
    stopped = {f"{name}-0" for name in POWER}
    stays_off = {name: vm["spec"] for name, vm in pools.vms().items() if name in stopped}
    for name, (template, _) in POWER.items():
        pools.change_template(vm_template(memory="128M", **template), name=name)
    for name in POWER:
        pools.wait_until_updated(2, name=name)
    stays(lambda: not stopped & pools.vmis().keys(), for_s=1.0, what="no VM is started")
    for name in stopped:
        spec = pools.vm(name)["spec"]
        assert vm_memory_of(pools.vm(name)) == "128M"
        power = ("runStrategy", "running")
        assert {each: spec.get(each) for each in power} == {each: stays_off[name].get(each) for each in power}


def test_p12_a_run_strategy_that_the_template_changes_reaches_the_vms(pools: PoolNamespace) -> None:
    pools.make_pool(2)
    pools.wait_ready(2)
    pools.change_template(vm_template(**HALTED))
    eventually(lambda: not pools.vmis(), what="the VMs stop")
    pools.change_template(vm_template())
    pools.wait_ready(2)


def test_p12_a_vm_whose_revision_is_missing_is_brought_to_the_template(pools: PoolNamespace) -> None:
    pools.make_pool(3, maxUnavailable=1)
    pools.wait_ready(3)
    halted_by_user(pools, "pool-0")
    pools.change_pool({"spec": {"paused": True}})
    eventually(lambda: pools.pool_condition("ReplicaPaused"))
    for name in ("pool-0", "pool-1"):
        steps(pools, name, ("domain/firmware", FIRMWARE), ("domain/resources/requests/memory", "1M"))
    pools.change_vm("pool-0", {"metadata": {"labels": {REVISION: None}}})
    pools.change_vm("pool-1", {"metadata": {"labels": {REVISION: "nobody-knows"}}})
    pools.kubectl("delete", "controllerrevision", "--all")
    eventually(lambda: pools.pool_status().get("updatedReplicas", 0) == 1, what="the missing revisions are seen")
    pools.wait_until_seen()
    pools.change_pool({"spec": {"paused": False}})
    pools.wait_until_updated(3)
    (revision,) = pools.revisions()
    for vm in pools.vms().values():
        assert (revision_of(vm), template_revision_of(vm), vm_memory_of(vm)) == (revision, revision, "64M")
    machines = [pools.vm(name)["spec"]["template"]["spec"] for name in ("pool-0", "pool-1")]
    assert [machine["domain"]["firmware"] for machine in machines] == [FIRMWARE] * 2
    assert pools.vm("pool-0")["spec"]["runStrategy"] == "Halted"
    assert "pool-0" not in pools.vmis()


LABELS = {"labelSelector": {"matchLabels": {"tier": "batch"}}}
NODES = {"nodeSelectorRequirementMatcher": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}
SELECTED: dict[str, tuple[dict[str, Any], set[int]]] = {
    "labels": (LABELS, {0, 1}),
    "nodes": (NODES, {1, 2}),
    "both": ({**LABELS, **NODES}, {1}),
}


def test_p12_vms_that_the_selectors_exclude_stay_as_they_are_until_they_match(pools: PoolNamespace) -> None:
    for name, (selectors, _) in SELECTED.items():
        strategy = {"proactive": {"selectionPolicy": {"selectors": selectors}}}
        pools.make_pool(4, name=name, updateStrategy=strategy)
    for name in SELECTED:
        pools.wait_ready(4, name=name)
        for ordinal, change in ((0, ("batch", None)), (1, ("batch", "b")), (2, ("", "a"))):
            labels, nodes = ({"tier": change[0]} if change[0] else {}), ({"zone": change[1]} if change[1] else {})
            template = {"metadata": {"labels": labels}, "spec": {"nodeSelector": nodes}}
            pools.change_vm(f"{name}-{ordinal}", {"spec": {"template": template}})
        # The selector applies to the labels of the VM's template, not to those of the VM.
        pools.change_vm(f"{name}-3", {"metadata": {"labels": {"tier": "batch", "zone": "a"}}})
    pools.wait_until_seen(name="labels")
    running = uids(pools.vmis())
    for name in SELECTED:
        pools.change_template(vm_template(memory="128M"), name=name)

    def updated(name: str) -> set[int]:
        vms, vmis = pools.vms(), pools.vmis()
        both = (f"{name}-{ordinal}" for ordinal in range(4))
        return {
            int(each[-1])
            for each in both
            if each in vmis and vm_memory_of(vms[each]) == "128M" and vmis[each]["metadata"]["uid"] != running[each]
        }

    wanted = {name: chosen for name, (_, chosen) in SELECTED.items()}
    eventually(lambda: {name: updated(name) for name in SELECTED} == wanted)
    stays(lambda: {name: updated(name) for name in SELECTED} == wanted, for_s=0.7)
    left = {f"{name}-{ordinal}" for name, chosen in wanted.items() for ordinal in {0, 1, 2, 3} - chosen}
    assert {vm_memory_of(vm) for name, vm in pools.vms().items() if name in left} == {"64M"}
    assert {name: uid for name, uid in uids(pools.vmis()).items() if name in left} == {n: running[n] for n in left}
    pools.change_vm("labels-3", {"spec": {"template": {"metadata": {"labels": {"tier": "batch"}}}}})
    eventually(lambda: updated("labels") == {0, 1, 3}, what="a matching VM is updated")


def test_p12_each_outdated_vm_gets_one_patch_and_other_vms_get_none(pools: PoolNamespace) -> None:
    pools.make_pool(10, template=vm_template(**HALTED))
    pools.wait_until_updated(10)
    position = pools.plane.audit_position()
    pools.change_template(vm_template(memory="128M", **HALTED))
    pools.wait_until_updated(10)
    patched = [record.name for record in done(pools, "patch", VMS, since=position)]
    assert sorted(patched) == [f"pool-{ordinal}" for ordinal in range(10)]
    assert pools.requests("update", since=position) == []
    position = pools.plane.audit_position()
    pools.change_pool({"spec": {"maxUnavailable": 3}})
    pools.wait_until_updated(10)
    assert done(pools, "patch", VMS, since=position) == []


def test_p12_no_more_than_burst_are_patched_in_a_pass(idle_namespace: ReplicaSetNamespace, tmp_path: Path) -> None:
    pools = PoolNamespace(idle_namespace.plane, idle_namespace.namespace)
    with controller_process(idle_namespace.plane, tmp_path, "--burst", "2", *PATIENT_LEASE) as program:
        pools.make_pool(5, template=vm_template(**HALTED))
        pools.wait_until_updated(5)
        before = len(program.lines(msg="reconciled", namespace=pools.namespace))
        pools.change_template(vm_template(memory="128M", **HALTED))
        pools.wait_until_updated(5)
        passes = program.lines(msg="reconciled", namespace=pools.namespace)[before:]
    updated = [line["three_way_merge_done"] for line in passes if "three_way_merge_done" in line]
    assert updated == [2, 2, 1]
