"""P12 and P13: VMs get the current template, and then their VMIs, also in a cluster that serves no restarts."""

import json

import pytest

from controller.kubevirt.annotations import PARTITION, PARTITION_REVISION, REVISION_NAME
from controller.kubevirt.resources import CONTROLLER_REVISIONS, VM_REQUESTS, VMIS, VMS
from controller.pool.plan import plan
from controller.runtime.actions import Create, Patch, Plan, ThreeWayMerge
from tests.fakes.rules import not_served
from tests.pool_builders import LABELS, pool, vm, vm_spec, vmi, vms
from tests.pool_simulation import PoolSimulation
from tests.pool_updates import during_update, merged, new_vms, old_vmis, restarted, updated_pool

DESCENDING = {"proactive": {"selectionPolicy": {"sortPolicy": "DescendingOrder"}}}


def test_p12_outdated_vms_are_updated_after_the_new_revision_is_created():
    owner = updated_pool()
    keep, change = plan(during_update(owner, vms(owner, 0, 1, 2), current=False)).stages
    assert [(each.resource, each.key.name) for each in keep.actions] == [(CONTROLLER_REVISIONS, "web-2")]
    assert [each.key.name for each in change.actions] == ["web-0", "web-1", "web-2"]
    assert keep.essential
    assert not change.essential, "a VM that cannot be patched does not delay other VMs"


def test_p12_a_merge_compares_the_old_and_the_new_template_with_indexes():
    before = pool(spec=vm_spec(image="v1", disks=["data"]))
    owner = updated_pool(spec=vm_spec(image="v2", disks=["data"]))
    [_, change, *_] = plan(during_update(owner, vms(owner, 0, 1, 2), before=before, current=False)).actions
    old, new = json.loads(change.old), json.loads(change.new)
    assert change.uid == "uid-web-0"
    assert [each["metadata"]["labels"][REVISION_NAME] for each in (old, new)] == ["web-1", "web-2"]
    for shape, image, name in ((old, "v1", "web-1"), (new, "v2", "web-2")):
        inner = shape["spec"]["template"]
        assert inner["metadata"]["labels"][REVISION_NAME] == name
        assert inner["spec"]["volumes"][0]["containerDisk"]["image"] == image
        assert shape["spec"]["dataVolumeTemplates"][0]["metadata"]["name"] == "data-0"
    assert set(old) == set(new) == {"metadata", "spec"}


@pytest.mark.parametrize("made_from", ["web-7", None])
def test_p12_a_vm_with_an_unknown_revision_is_outdated(made_from):
    owner = updated_pool(replicas=1)
    [change] = plan(during_update(owner, vms(owner, 0, revision=made_from), vmis=())).actions
    assert isinstance(change, ThreeWayMerge)
    assert change.old == b"{}"


UNCHANGED = {
    "the template is the same": {"spec": vm_spec(image="v1"), "maxUnavailable": 1},
    "no volume depends on nameGeneration": {
        "spec": vm_spec(image="v1"),
        "nameGeneration": {"appendIndexToSecretRefs": True},
    },
    "the pool is unmanaged": {"updateStrategy": {"unmanaged": {}}},
}


@pytest.mark.parametrize("fields", UNCHANGED.values(), ids=UNCHANGED)
def test_p12_no_vm_is_changed(fields):
    owner = updated_pool(**fields)
    assert plan(during_update(owner, vms(owner, 0, 1, 2), current=False)) == Plan()


SELECTED = {
    "at most burst": ({}, {"burst": 2}, ["web-0", "web-1"]),
    "in the order of the policy": ({"updateStrategy": DESCENDING}, {}, ["web-2", "web-1", "web-0"]),
}


@pytest.mark.parametrize(("fields", "more", "expected"), SELECTED.values(), ids=SELECTED)
def test_p12_p13_vms_are_updated_and_restarted_in_order_and_at_most_burst_in_a_pass(fields, more, expected):
    owner = updated_pool(**fields)
    assert merged(plan(during_update(owner, vms(owner, 0, 1, 2), **more))) == expected
    begun = new_vms(owner, 0, 1, 2)
    assert restarted(plan(during_update(owner, begun, vmis=old_vmis(begun), **more))) == expected


def test_p12_selectors_exclude_vms():
    selectors = {"labelSelector": {"matchLabels": {"tier": "front"}}}
    owner = updated_pool(replicas=2, updateStrategy={"proactive": {"selectionPolicy": {"selectors": selectors}}})
    front = vm("web-1", owner=owner, spec=vm_spec(labels={**LABELS, "tier": "front"}))
    assert merged(plan(during_update(owner, (*vms(owner, 0), front)))) == ["web-1"]


def test_p13_if_the_vmi_template_is_the_same_only_the_label_is_patched():
    owner = updated_pool(spec=vm_spec(image="v1"), labels={**LABELS, "new": "label"}, maxUnavailable=1)
    machines = vms(owner, 0, 1, 2, revision="web-2")
    patches = plan(during_update(owner, machines, vmis=old_vmis(machines))).actions
    assert [(each.resource, each.key.name) for each in patches] == [(VMIS, f"web-{n}") for n in range(3)]
    assert all(isinstance(each, Patch) for each in patches)
    assert json.loads(patches[0].body) == {"metadata": {"uid": "uid-web-0", "labels": {REVISION_NAME: "web-2"}}}


def test_p13_if_the_vmi_template_differs_or_is_not_known_the_vmi_is_deleted():
    owner = updated_pool()
    machines = new_vms(owner, 0, 1, 2)
    for name in ("web-1", "web-9"):
        todo = plan(during_update(owner, machines, vmis=[vmi(each, revision=name) for each in machines]))
        assert [each.resource for each in todo.actions] == [VMIS] * 3
        assert restarted(todo) == ["web-0", "web-1", "web-2"]


UNLABELLED = {"spec": vm_spec(image="v2")}
"""A user removed the revision label from the VM's template. If the VM restarts, its new VMI has no label either."""

NOT_RESTARTED = {
    "the pool is opportunistic": ({"updateStrategy": {"opportunistic": {}}}, {}, {}),
    "the VMI has the revision of its VM": ({}, {}, {"revision": "web-2"}),
    "the VMI is terminating": ({}, {}, {"deleting": True}),
    "a restart would change nothing": ({}, UNLABELLED, {"revision": None}),
    "the VM is being halted": ({"spec": vm_spec(image="v2", run_strategy="Halted")}, {"strategy": "Halted"}, {}),
}


@pytest.mark.parametrize(("fields", "of_vm", "of_vmi"), NOT_RESTARTED.values(), ids=NOT_RESTARTED)
def test_p13_a_vmi_is_not_restarted(fields, of_vm, of_vmi):
    owner = updated_pool(replicas=1, **fields)
    [machine] = new_vms(owner, 0, **of_vm)
    todo = plan(during_update(owner, [machine], vmis=[vmi(machine, **{"revision": "web-1", **of_vmi})]))
    assert todo.actions == ()
    assert (todo.notices, todo.requeue_after_s) == ((), None) or "deleting" in of_vmi


def test_p12_an_update_keeps_the_changes_that_users_made_to_their_vms():
    simulation = PoolSimulation(pool(spec=vm_spec(image="v1")))
    simulation.come_to_rest()
    simulation.edit_vm("web-1", spec={"template": {"spec": {"domain": {"firmware": {"uuid": "its-own"}}}}})
    simulation.edit_vm("web-0", spec={"runStrategy": "Halted"})
    simulation.change_template(vm_spec(image="v2"))
    simulation.come_to_rest()
    assert simulation.images() == {f"web-{n}": "v2" for n in range(3)}
    assert simulation.vms["web-1"]["spec"]["template"]["spec"]["domain"]["firmware"] == {"uuid": "its-own"}
    assert simulation.vms["web-0"]["spec"]["runStrategy"] == "Halted"
    assert simulation.pool["status"]["updateRevision"] == "web-2"


def created(todo):
    """The revision and the image of each VM that is created, by its name."""
    bodies = {each.key.name: json.loads(each.body) for each in todo.actions if isinstance(each, Create)}
    return {
        name: (
            body["metadata"]["labels"][REVISION_NAME],
            body["spec"]["template"]["spec"]["volumes"][0]["containerDisk"]["image"],
        )
        for name, body in bodies.items()
    }


def test_p14_a_vm_that_is_created_below_the_partition_gets_the_revision_of_the_status():
    owner = updated_pool(replicas=3, annotations={PARTITION: "2"}, status={"currentRevision": "web-1"})
    expected = {"web-0": ("web-1", "v1"), "web-1": ("web-1", "v1"), "web-2": ("web-2", "v2")}
    assert created(plan(during_update(owner, ()))) == expected


def test_p14_below_the_partition_a_new_vm_gets_the_revision_of_the_other_vms_there():
    """The plan copies the revision from other VMs, because KubeVirt's CRD has no status field `currentRevision`."""
    owner = updated_pool(replicas=4, annotations={PARTITION: "2"})
    assert created(plan(during_update(owner, (*vms(owner, 1), *new_vms(owner, 2, 3))))) == {"web-0": ("web-1", "v1")}


def test_p14_if_no_vm_is_left_below_the_partition_a_new_vm_gets_the_noted_revision():
    owner = updated_pool(replicas=3, annotations={PARTITION: "1"})
    machines = (*vms(owner, 0), *new_vms(owner, 1, 2))
    [note] = plan(during_update(owner, machines)).actions
    assert isinstance(note, Patch)
    noted = json.loads(note.body)["metadata"]["annotations"]
    assert noted == {PARTITION_REVISION: "web-1"}

    owner = updated_pool(replicas=3, annotations={PARTITION: "1", **noted})
    assert created(plan(during_update(owner, new_vms(owner, 1, 2)))) == {"web-0": ("web-1", "v1")}
    assert plan(during_update(owner, machines)).actions == ()


WHY = "virtualmachines.subresources.kubevirt.io/restart is not served: the server could not find the requested resource"


def manual_pool() -> PoolSimulation:
    """Three running VMs with run strategy Manual, and a new template. The cluster does not serve restarts."""
    simulation = PoolSimulation(pool(spec=vm_spec(image="v1", run_strategy="Manual"), maxUnavailable=1))
    simulation.come_to_rest()
    for name in simulation.vms:
        simulation.server.change(VMS, simulation.key(name), {"status": {"stateChangeRequests": [{"action": "Start"}]}})
    simulation.come_to_rest()
    simulation.change_template(vm_spec(image="v2", run_strategy="Manual"))
    simulation.server.on_update = not_served
    return simulation


def test_p13_a_pool_without_restarts_is_degraded_and_reports_it_once_and_retries_rarely():
    simulation = manual_pool()
    start = simulation.now
    simulation.run_passes(60)
    status = simulation.pool["status"]
    assert status["printableStatus"] == "Degraded"
    assert [each["message"] for each in status["conditions"] if each["type"] == "ReplicaFailure"] == [
        f"error during VMI update: {WHY}"
    ]
    told = [each for each in simulation.process.recorder.published if "waits for a restart" in each.message]
    assert len({each.once for each in told}) == 1
    assert told[0].once
    asked = [each for each in simulation.server.requests if each.resource is VM_REQUESTS]
    assert 1 < len(asked) <= (simulation.now - start).total_seconds() / 20 + 1
    assert status["updatedReplicas"] == 0
    assert {each["metadata"]["labels"]["kubevirt.io/vm-pool-revision-name"] for each in simulation.vmis.values()} == {
        "web-1"
    }
