"""P12: VMs are brought to the template of now, and keep whatever the template did not change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.integration.herd import Place, eventually, herd, stays
from tests.integration.ranch import HOLD, POOL_LABELS, REVISION, Ranch, finalizers_of, uids, vm_template
from tests.integration.renewal import VMIS, VMS, done, revision_of, template_revision_of, vm_memory_of

pytestmark = pytest.mark.cluster

HALTED = {"runStrategy": "Halted"}
OPPORTUNISTIC = {"opportunistic": {}}
FIRMWARE = {"uuid": "5d307ca9-b3ef-428c-8861-06e72d69f223", "serial": "e4686d2c"}
HOT_DISK = {"name": "hot", "disk": {"bus": "scsi"}, "serial": "hot-1"}
HOT_VOLUME = {"name": "hot", "dataVolume": {"name": "hot", "hotpluggable": True}}
NETWORKS = [{"name": "default", "pod": {}}]


def with_interface(template: dict[str, Any], **interface: Any) -> dict[str, Any]:
    spec = template["spec"]["template"]["spec"]
    spec["networks"] = NETWORKS
    spec["domain"]["devices"]["interfaces"] = [{"name": "default", "masquerade": {}, **interface}]
    return template


def steps(ranch: Ranch, name: str, *changes: tuple[str, Any]) -> None:
    """Add values to a VM's VMI template, as KubeVirt and its users do."""
    ranch.change_vm_by_steps(name, *((f"/spec/template/spec/{path}", value) for path, value in changes))


def halted_by_user(ranch: Ranch, name: str, **power: Any) -> None:
    ranch.change_vm(name, {"spec": power or HALTED})
    eventually(lambda: name not in ranch.vmis(), what=f"{name} is stopped")


def test_p12_labels_annotations_and_the_indexed_spec_become_the_templates(ranch: Ranch) -> None:
    before = with_interface(vm_template(labels={"tier": "a", "goes": "x"}, disks=("root",), **HALTED))
    before["metadata"]["annotations"] = {"note": "old", "drop": "me"}
    ranch.make_pool(2, template=before)
    made = uids(ranch.wait_for_ordinals(0, 1, ready=False))
    after = vm_template(labels={"tier": "b", "comes": "y"}, vmi_labels={"in": "side"}, disks=("root", "data"), **HALTED)
    after["metadata"]["annotations"] = {"note": "new"}
    pool = ranch.change_template(with_interface(after, model="virtio"))
    ranch.wait_until_updated(2)
    revision = f"pool-{pool['metadata']['generation']}"
    vms = ranch.vms()
    assert uids(vms) == made, "a VM that does not run is never made anew"
    for ordinal in (0, 1):
        vm = vms[f"pool-{ordinal}"]
        assert vm["metadata"]["labels"] == {**POOL_LABELS, "tier": "b", "comes": "y", REVISION: revision}
        assert vm["metadata"]["annotations"] == {"note": "new"}
        assert template_revision_of(vm) == revision
        disks = [disk["metadata"]["name"] for disk in vm["spec"]["dataVolumeTemplates"]]
        assert disks == [f"root-{ordinal}", f"data-{ordinal}"]
    # But for what is indexed, a VM that nobody changed is what the template says, to the letter.
    wanted, found = ranch.specs_exactly()
    for spec in (wanted, *found):
        del spec["dataVolumeTemplates"], spec["template"]["spec"]["volumes"]
        spec["template"]["metadata"]["labels"].pop(REVISION, None)
    assert found == [wanted] * 2


def test_p12_what_the_template_did_not_change_stays_as_the_vm_has_it(ranch: Ranch) -> None:
    ranch.make_pool(1, template=with_interface(vm_template(disks=("root",), **HALTED)))
    before = ranch.wait_for_ordinals(0, ready=False)["pool-0"]
    ranch.hold_vm("pool-0")
    foreign = {"labels": {"backup": "daily"}, "annotations": {"note": "mine"}}
    ranch.change_vm("pool-0", {"metadata": foreign, "spec": {"template": {"metadata": foreign}}})
    steps(
        ranch,
        "pool-0",
        ("domain/firmware", FIRMWARE),
        ("domain/devices/interfaces/0/macAddress", "02:00:00:00:00:01"),
        ("domain/devices/disks/-", HOT_DISK),
        ("volumes/-", HOT_VOLUME),
        ("volumes/0/dataVolume/name", "root-0-restored"),
        ("nodeSelector", {"zone": "a"}),
    )
    changed = with_interface(vm_template(disks=("root", "data"), memory="128Mi", **HALTED), model="virtio")
    ranch.change_template(changed)
    ranch.wait_until_updated(1)
    vm = ranch.vm("pool-0")
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
        assert metadata["annotations"] == {"note": "mine"}
    assert finalizers_of(vm) == [*finalizers_of(before), HOLD]
    assert vm["metadata"]["ownerReferences"] == before["metadata"]["ownerReferences"]
    ranch.let_vm_go("pool-0")


POWER: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "strategy": ({"runStrategy": "Always"}, {"runStrategy": "Halted"}),
    "running": ({"running": True}, {"running": False}),
    "switched": ({"running": True}, {"running": None, "runStrategy": "Halted"}),
}


def test_p12_a_vm_that_its_user_stopped_is_brought_up_to_date_and_not_started(ranch: Ranch) -> None:
    for name, (template, _) in POWER.items():
        ranch.make_pool(2, name=name, template=vm_template(**template), maxUnavailable=1)
    ranch.wait_for_vms(*(f"{name}-{ordinal}" for name in POWER for ordinal in (0, 1)))
    for name, (_, stop) in POWER.items():
        halted_by_user(ranch, f"{name}-0", **stop)
    stopped = {f"{name}-0" for name in POWER}
    stays_off = {name: vm["spec"] for name, vm in ranch.vms().items() if name in stopped}
    for name, (template, _) in POWER.items():
        ranch.change_template(vm_template(memory="128M", **template), name=name)
    for name in POWER:
        ranch.wait_until_updated(2, name=name)
    stays(lambda: not stopped & ranch.vmis().keys(), for_s=1.0, what="nobody is started")
    for name in stopped:
        spec = ranch.vm(name)["spec"]
        assert vm_memory_of(ranch.vm(name)) == "128M"
        power = ("runStrategy", "running")
        assert {each: spec.get(each) for each in power} == {each: stays_off[name].get(each) for each in power}


def test_p12_a_run_strategy_that_the_template_changes_reaches_the_vms(ranch: Ranch) -> None:
    ranch.make_pool(2)
    ranch.wait_ready(2)
    ranch.change_template(vm_template(**HALTED))
    eventually(lambda: not ranch.vmis(), what="they stop")
    ranch.change_template(vm_template())
    ranch.wait_ready(2)


def test_p12_a_vm_whose_revision_is_missing_is_brought_to_the_template(ranch: Ranch) -> None:
    ranch.make_pool(3, maxUnavailable=1)
    ranch.wait_ready(3)
    halted_by_user(ranch, "pool-0")
    ranch.change_pool({"spec": {"paused": True}})
    eventually(lambda: ranch.pool_condition("ReplicaPaused"))
    for name in ("pool-0", "pool-1"):
        steps(ranch, name, ("domain/firmware", FIRMWARE), ("domain/resources/requests/memory", "1M"))
    ranch.change_vm("pool-0", {"metadata": {"labels": {REVISION: None}}})
    ranch.change_vm("pool-1", {"metadata": {"labels": {REVISION: "nobody-knows"}}})
    ranch.kubectl("delete", "controllerrevision", "--all")
    ranch.change_pool({"spec": {"paused": False}})
    ranch.wait_until_updated(3)
    (revision,) = ranch.revisions()
    for vm in ranch.vms().values():
        assert (revision_of(vm), template_revision_of(vm), vm_memory_of(vm)) == (revision, revision, "64M")
    machines = [ranch.vm(name)["spec"]["template"]["spec"] for name in ("pool-0", "pool-1")]
    assert [machine["domain"]["firmware"] for machine in machines] == [FIRMWARE] * 2
    assert ranch.vm("pool-0")["spec"]["runStrategy"] == "Halted"
    assert "pool-0" not in ranch.vmis()


def test_p12_an_unmanaged_pool_touches_no_vm_and_makes_new_ones_from_the_template(ranch: Ranch) -> None:
    ranch.make_pool(2, updateStrategy={"unmanaged": {}})
    ranch.wait_ready(2)
    position = ranch.plane.audit_position()
    ranch.change_template(vm_template(memory="128M", labels={"tier": "new"}))
    eventually(lambda: ranch.pool_status().get("updatedReplicas", 0) == 0, what="both are outdated")
    ranch.scale(3)
    ranch.wait_for_ordinals(0, 1, 2)
    stays(lambda: len(ranch.vmis()) == 3, for_s=0.7)
    assert {name: vm_memory_of(vm) for name, vm in ranch.vms().items()} == {
        "pool-0": "64M",
        "pool-1": "64M",
        "pool-2": "128M",
    }
    assert [done(ranch, verb, kind, since=position) for verb in ("patch", "delete") for kind in (VMS, VMIS)] == [[]] * 4
    assert ranch.pool_status()["updatedReplicas"] == 1


LABELS = {"labelSelector": {"matchLabels": {"tier": "batch"}}}
NODES = {"nodeSelectorRequirementMatcher": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}
SELECTED: dict[str, tuple[dict[str, Any], set[int]]] = {
    "labels": (LABELS, {0, 1}),
    "nodes": (NODES, {1, 2}),
    "both": ({**LABELS, **NODES}, {1}),
}


def test_p12_vms_that_the_selectors_exclude_stay_as_they_are_until_they_match(ranch: Ranch) -> None:
    for name, (selectors, _) in SELECTED.items():
        strategy = {"proactive": {"selectionPolicy": {"selectors": selectors}}}
        ranch.make_pool(4, name=name, updateStrategy=strategy)
    for name in SELECTED:
        ranch.wait_ready(4, name=name)
        for ordinal, change in ((0, ("batch", None)), (1, ("batch", "b")), (2, ("", "a"))):
            labels, nodes = ({"tier": change[0]} if change[0] else {}), ({"zone": change[1]} if change[1] else {})
            template = {"metadata": {"labels": labels}, "spec": {"nodeSelector": nodes}}
            ranch.change_vm(f"{name}-{ordinal}", {"spec": {"template": template}})
        # Labels of the VM itself are none of its template.
        ranch.change_vm(f"{name}-3", {"metadata": {"labels": {"tier": "batch", "zone": "a"}}})
    ranch.wait_until_seen(name="labels")
    running = uids(ranch.vmis())
    for name in SELECTED:
        ranch.change_template(vm_template(memory="128M"), name=name)

    def updated(name: str) -> set[int]:
        vms, vmis = ranch.vms(), ranch.vmis()
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
    assert {vm_memory_of(vm) for name, vm in ranch.vms().items() if name in left} == {"64M"}
    assert {name: uid for name, uid in uids(ranch.vmis()).items() if name in left} == {n: running[n] for n in left}
    ranch.change_vm("labels-3", {"spec": {"template": {"metadata": {"labels": {"tier": "batch"}}}}})
    eventually(lambda: updated("labels") == {0, 1, 3}, what="it is updated as soon as it matches")


def test_p12_what_is_sent_is_one_patch_for_each_vm_and_nothing_when_nothing_differs(ranch: Ranch) -> None:
    ranch.make_pool(10, template=vm_template(**HALTED))
    ranch.wait_until_updated(10)
    position = ranch.plane.audit_position()
    ranch.change_template(vm_template(memory="128M", **HALTED))
    ranch.wait_until_updated(10)
    patched = [record.name for record in done(ranch, "patch", VMS, since=position)]
    assert sorted(patched) == [f"pool-{ordinal}" for ordinal in range(10)]
    assert ranch.requests("update", since=position) == []
    position = ranch.plane.audit_position()
    ranch.change_pool({"spec": {"maxUnavailable": 3}})
    ranch.wait_until_updated(10)
    assert done(ranch, "patch", VMS, since=position) == []


def test_p12_no_more_than_burst_are_patched_in_a_pass(vacant: Place, tmp_path: Path) -> None:
    ranch = Ranch(vacant.plane, vacant.namespace)
    with herd(vacant.plane, tmp_path, "--burst", "2") as program:
        ranch.make_pool(5, template=vm_template(**HALTED))
        ranch.wait_until_updated(5)
        before = len(program.lines(msg="reconciled", namespace=ranch.namespace))
        ranch.change_template(vm_template(memory="128M", **HALTED))
        ranch.wait_until_updated(5)
        passes = program.lines(msg="reconciled", namespace=ranch.namespace)[before:]
    updated = [line["three_way_merge_done"] for line in passes if "three_way_merge_done" in line]
    assert updated == [2, 2, 1]
