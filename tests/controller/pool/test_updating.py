"""P12 and P13: VMs are updated to the current template, and then their VMIs."""

from __future__ import annotations

import json

import pytest

from controller.kubevirt.annotations import PARTITION, PARTITION_REVISION, REVISION_NAME
from controller.kubevirt.resources import CONTROLLER_REVISIONS, VMIS, VMS
from controller.pool.plan import plan
from controller.runtime.actions import Create, Delete, Patch, Plan, ThreeWayMerge
from tests.pool_builders import LABELS, pool, revision, snapshot, vm, vm_spec, vmi, vms
from tests.pool_healing import announced_for
from tests.pool_simulation import PoolSimulation

BEFORE = pool(spec=vm_spec(image="v1"))
ASCENDING = {"proactive": {"selectionPolicy": {"sortPolicy": "AscendingOrder"}}}
OPPORTUNISTIC = {"opportunistic": {}}
UNMANAGED = {"unmanaged": {}}


def updated_pool(**changes):
    return pool(**{"generation": 2, "spec": vm_spec(image="v2"), "updateStrategy": ASCENDING, **changes})


def seen(owner, machines, *, before=BEFORE, current=True, **more):
    """A snapshot with the revision web-1, made from the pool in the argument `before`.

    If the argument `current` is true, the snapshot also has the revision web-2, made from `owner`.
    """
    kept = [revision(before, "web-1", number=1)]
    if current:
        kept.append(revision(owner, "web-2", number=2))
    return snapshot(owner, machines, revisions=kept, **more)


def merged(todo):
    return [each.key.name for each in todo.actions if isinstance(each, ThreeWayMerge)]


def deleted(todo, resource):
    return [each.key.name for each in todo.actions if isinstance(each, Delete) and each.resource is resource]


def current_vms(owner, *ordinals, **changes):
    labels = {**LABELS, REVISION_NAME: "web-2"}
    return vms(owner, *ordinals, revision="web-2", spec=vm_spec(image="v2", labels=labels), **changes)


def old_vmis(machines, **changes):
    return [vmi(each, revision="web-1", **changes) for each in machines]


def test_p12_outdated_vms_are_updated_after_the_new_revision_is_created():
    owner = updated_pool()
    keep, change = plan(seen(owner, vms(owner, 0, 1, 2), current=False)).stages
    assert [(each.resource, each.key.name) for each in keep.actions] == [(CONTROLLER_REVISIONS, "web-2")]
    assert [each.key.name for each in change.actions] == ["web-0", "web-1", "web-2"]
    assert keep.essential
    assert not change.essential, "a VM that cannot be patched does not delay other VMs"


def test_p12_a_merge_compares_the_old_and_the_new_template_with_indexes():
    before = pool(spec=vm_spec(image="v1", disks=["data"]))
    owner = updated_pool(spec=vm_spec(image="v2", disks=["data"]))
    [_, change, *_] = plan(seen(owner, vms(owner, 0, 1, 2), before=before, current=False)).actions
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
    [change] = plan(seen(owner, vms(owner, 0, revision=made_from), vmis=())).actions
    assert isinstance(change, ThreeWayMerge)
    assert change.old == b"{}"


def test_p12_a_pool_whose_template_did_not_change_plans_nothing():
    owner = updated_pool(spec=vm_spec(image="v1"), maxUnavailable=1)
    assert plan(seen(owner, vms(owner, 0, 1, 2), current=False)) == Plan()


def test_p12_a_change_of_name_generation_without_references_is_no_change():
    owner = updated_pool(spec=vm_spec(image="v1"), nameGeneration={"appendIndexToSecretRefs": True})
    assert plan(seen(owner, vms(owner, 0, 1, 2), current=False)) == Plan()


def test_p12_at_most_burst_vms_are_updated_in_a_pass():
    owner = updated_pool()
    assert merged(plan(seen(owner, vms(owner, 0, 1, 2), burst=2))) == ["web-0", "web-1"]


def test_p12_vms_are_updated_in_the_order_of_the_policy():
    policy = {"proactive": {"selectionPolicy": {"sortPolicy": "DescendingOrder"}}}
    owner = updated_pool(updateStrategy=policy)
    assert merged(plan(seen(owner, vms(owner, 0, 1, 2)))) == ["web-2", "web-1", "web-0"]


def test_p12_an_unmanaged_pool_changes_no_vm():
    owner = updated_pool(updateStrategy=UNMANAGED)
    assert plan(seen(owner, vms(owner, 0, 1, 2), current=False)) == Plan()


def test_p12_selectors_exclude_vms():
    selectors = {"labelSelector": {"matchLabels": {"tier": "front"}}}
    owner = updated_pool(replicas=2, updateStrategy={"proactive": {"selectionPolicy": {"selectors": selectors}}})
    front = vm("web-1", owner=owner, spec=vm_spec(labels={**LABELS, "tier": "front"}))
    assert merged(plan(seen(owner, (*vms(owner, 0), front)))) == ["web-1"]


def test_p12_a_terminating_vm_is_not_updated():
    owner = updated_pool(replicas=2)
    assert merged(plan(seen(owner, (*vms(owner, 0), *vms(owner, 1, deleting=True, finalizers=("x",)))))) == ["web-0"]


def test_p12_ordinals_below_the_partition_keep_their_revision():
    owner = updated_pool(annotations={PARTITION: "2"})
    assert merged(plan(seen(owner, vms(owner, 0, 1, 2)))) == ["web-2"]


def test_p13_an_opportunistic_pool_restarts_nothing():
    owner = updated_pool(updateStrategy=OPPORTUNISTIC)
    machines = current_vms(owner, 0, 1, 2)
    assert plan(seen(owner, machines, vmis=old_vmis(machines))) == Plan()


def test_p13_a_vmi_with_the_revision_of_its_vm_is_not_changed():
    owner = updated_pool()
    assert plan(seen(owner, current_vms(owner, 0, 1, 2))) == Plan()


def test_p13_if_the_vmi_template_is_the_same_only_the_label_is_patched():
    owner = updated_pool(spec=vm_spec(image="v1"), labels={**LABELS, "new": "label"}, maxUnavailable=1)
    machines = vms(owner, 0, 1, 2, revision="web-2")
    patches = plan(seen(owner, machines, vmis=old_vmis(machines))).actions
    assert [(each.resource, each.key.name) for each in patches] == [(VMIS, f"web-{n}") for n in range(3)]
    assert all(isinstance(each, Patch) for each in patches)
    assert json.loads(patches[0].body) == {"metadata": {"uid": "uid-web-0", "labels": {REVISION_NAME: "web-2"}}}


def test_p13_if_the_disks_differ_the_vm_is_deleted_in_the_foreground():
    owner = updated_pool(spec=vm_spec(image="v1", disks=["data"]))
    machines = vms(owner, 0, 1, 2, revision="web-2", spec=vm_spec(disks=["data"]))
    todo = plan(seen(owner, machines, vmis=old_vmis(machines)))
    assert deleted(todo, VMS) == ["web-0", "web-1", "web-2"]
    assert all(each.foreground for each in todo.actions if isinstance(each, Delete))


def test_p13_if_the_vmi_template_differs_the_vmi_is_deleted():
    owner = updated_pool()
    machines = current_vms(owner, 0, 1, 2)
    todo = plan(seen(owner, machines, vmis=old_vmis(machines)))
    assert deleted(todo, VMIS) == ["web-0", "web-1", "web-2"]
    assert not deleted(todo, VMS)


def test_p13_vmis_are_restarted_in_the_order_of_the_policy():
    policy = {"proactive": {"selectionPolicy": {"sortPolicy": "DescendingOrder"}}}
    owner = updated_pool(updateStrategy=policy)
    machines = current_vms(owner, 0, 1, 2)
    assert deleted(plan(seen(owner, machines, vmis=old_vmis(machines))), VMIS) == ["web-2", "web-1", "web-0"]


def test_p13_a_vmi_with_an_unknown_revision_is_restarted():
    owner = updated_pool(replicas=1)
    machines = current_vms(owner, 0)
    assert deleted(plan(seen(owner, machines, vmis=[vmi(machines[0], revision="web-9")])), VMIS) == ["web-0"]


def test_p13_the_vmi_of_an_outdated_vm_is_not_deleted():
    owner = updated_pool(replicas=1)
    assert deleted(plan(seen(owner, vms(owner, 0))), VMIS) == []


def test_p13_a_terminating_vmi_is_not_deleted_again():
    owner = updated_pool(replicas=1)
    machines = current_vms(owner, 0)
    assert plan(seen(owner, machines, vmis=old_vmis(machines, deleting=True))).actions == ()


def test_p13_a_restart_that_would_change_nothing_is_not_planned():
    """A user removed the revision label from the VM's template. If the VM restarts, its new VMI has no revision label
    either.
    """
    owner = updated_pool(replicas=1)
    machines = vms(owner, 0, revision="web-2", spec=vm_spec(image="v2"))
    assert plan(seen(owner, machines, vmis=[vmi(machines[0], revision=None)])) == Plan()


def test_p13_the_vmi_of_a_vm_that_is_being_halted_is_not_restarted():
    owner = updated_pool(replicas=1, spec=vm_spec(image="v2", run_strategy="Halted"))
    spec = vm_spec(image="v2", run_strategy="Halted", labels={**LABELS, REVISION_NAME: "web-2"})
    machines = vms(owner, 0, revision="web-2", spec=spec)
    assert plan(seen(owner, machines, vmis=old_vmis(machines))) == Plan()


def test_p16_nothing_is_updated_while_the_count_is_wrong():
    owner = updated_pool(replicas=4)
    todo = plan(seen(owner, vms(owner, 0, 1, 2)))
    assert [type(each) for each in todo.actions] == [Create]
    assert deleted(plan(seen(updated_pool(replicas=2), vms(owner, 0, 1, 2))), VMIS) == []


def test_p12_an_update_keeps_the_changes_that_users_made_to_their_vms():
    simulation = PoolSimulation(pool(spec=vm_spec(image="v1")))
    simulation.come_to_rest()
    simulation.edit_vm("web-1", spec={"template": {"spec": {"domain": {"firmware": {"uuid": "its-own"}}}}})
    simulation.edit_vm("web-0", spec={"runStrategy": "Halted"})
    simulation.change(
        virtualMachineTemplate=simulation.pool["spec"]["virtualMachineTemplate"] | {"spec": vm_spec(image="v2")}
    )
    simulation.come_to_rest()
    images = {
        name: each["spec"]["template"]["spec"]["volumes"][0]["containerDisk"] for name, each in simulation.vms.items()
    }
    assert images == {f"web-{n}": {"image": "v2"} for n in range(3)}
    assert simulation.vms["web-1"]["spec"]["template"]["spec"]["domain"]["firmware"] == {"uuid": "its-own"}
    assert simulation.vms["web-0"]["spec"]["runStrategy"] == "Halted"
    assert simulation.pool["status"]["updateRevision"] == "web-2"


def test_p13_an_outdated_vm_is_updated_before_its_vmi_even_if_the_revision_of_the_vmi_is_unknown():
    owner = updated_pool(replicas=1)
    machines = vms(owner, 0)
    todo = plan(seen(owner, machines, vmis=[vmi(machines[0], revision="web-0")]))
    assert merged(todo) == ["web-0"]
    assert deleted(todo, VMIS) == []


def test_p13_the_label_of_a_vmi_is_patched_under_every_run_strategy():
    spec = vm_spec(image="v1", run_strategy="Manual")
    owner = updated_pool(replicas=1, spec=spec, labels={**LABELS, "new": "label"})
    machines = vms(owner, 0, revision="web-2", spec=spec)
    [patch] = plan(seen(owner, machines, before=pool(spec=spec), vmis=old_vmis(machines))).actions
    assert isinstance(patch, Patch)


def test_p13_at_most_burst_vmis_are_restarted_in_a_pass():
    owner = updated_pool()
    machines = current_vms(owner, 0, 1, 2)
    assert deleted(plan(seen(owner, machines, vmis=old_vmis(machines), burst=2)), VMIS) == ["web-0", "web-1"]


def test_p15_a_vm_that_is_healed_is_not_updated():
    owner = updated_pool(autohealing={"startUpFailureThreshold": 1})
    machines = (*vms(owner, 0, ready=False, failures=1), *vms(owner, 1, 2))
    first, second = plan(seen(owner, machines)), plan(seen(announced_for(owner, machines[0]), machines))
    assert (deleted(first, VMS), deleted(second, VMS)) == ([], ["web-0"])
    assert merged(first) == merged(second) == ["web-1", "web-2"]


def test_p14_a_vm_that_is_created_below_the_partition_gets_the_revision_of_the_status():
    owner = updated_pool(replicas=3, annotations={PARTITION: "2"}, status={"currentRevision": "web-1"})
    todo = plan(seen(owner, ()))
    made = {each.key.name: json.loads(each.body) for each in todo.actions if isinstance(each, Create)}
    assert {name: body["metadata"]["labels"][REVISION_NAME] for name, body in made.items()} == {
        "web-0": "web-1",
        "web-1": "web-1",
        "web-2": "web-2",
    }
    images = [body["spec"]["template"]["spec"]["volumes"][0]["containerDisk"]["image"] for body in made.values()]
    assert images == ["v1", "v1", "v2"]


def test_p14_below_the_partition_a_new_vm_gets_the_revision_of_the_other_vms_there():
    """The plan copies the revision from other VMs, because KubeVirt's CRD has no status field `currentRevision`."""
    owner = updated_pool(replicas=4, annotations={PARTITION: "2"})
    machines = (*vms(owner, 1), *current_vms(owner, 2, 3))
    todo = plan(seen(owner, machines))
    [made] = [each for each in todo.actions if isinstance(each, Create)]
    assert json.loads(made.body)["metadata"]["labels"][REVISION_NAME] == "web-1"


def test_p14_if_no_vm_is_left_below_the_partition_a_new_vm_gets_the_noted_revision():
    owner = updated_pool(replicas=3, annotations={PARTITION: "1"})
    [note] = [each for each in plan(seen(owner, (*vms(owner, 0), *current_vms(owner, 1, 2)))).actions]
    assert isinstance(note, Patch)
    noted = json.loads(note.body)["metadata"]["annotations"]
    assert noted == {PARTITION_REVISION: "web-1"}

    owner = updated_pool(replicas=3, annotations={PARTITION: "1", **noted})
    todo = plan(seen(owner, current_vms(owner, 1, 2)))
    [made] = [each for each in todo.actions if isinstance(each, Create)]
    assert json.loads(made.body)["metadata"]["labels"][REVISION_NAME] == "web-1"
    assert plan(seen(owner, (*vms(owner, 0), *current_vms(owner, 1, 2)))).actions == ()
