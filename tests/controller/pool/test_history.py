"""P11: the templates that VMs were made from are kept, under which names, and for how long."""

from __future__ import annotations

import json

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from controller.kubevirt.annotations import REVISION_NAME
from controller.kubevirt.resources import CONTROLLER_REVISIONS
from controller.pool.plan import plan
from controller.pool.revisions import oldest_in_use
from controller.runtime.plan import Create, Delete, Plan
from tests.pool_builders import LABELS, pool, revision, revisions_of, snapshot, vm_spec, vmi, vms
from tests.pool_simulation import PoolSimulation


def kept(todo, kind=Create):
    return [each.key.name for each in todo.actions if isinstance(each, kind) and each.resource is CONTROLLER_REVISIONS]


def template_of(number):
    return pool(generation=number, spec=vm_spec(image=f"v{number}"))


def history(*numbers):
    return [revision(template_of(number), number=number) for number in numbers]


def test_p11_a_revision_is_named_by_the_generation_and_is_the_pools():
    owner = pool(replicas=1, generation=7)
    create = plan(snapshot(owner, revisions=())).actions[0]
    body = json.loads(create.body)
    assert create.key == ("default", "web-7")
    assert create.owner_uid == "uid-of-the-pool"
    assert (body["apiVersion"], body["kind"], body["revision"]) == ("apps/v1", "ControllerRevision", 7)
    [reference] = body["metadata"]["ownerReferences"]
    assert (reference["uid"], reference["controller"]) == ("uid-of-the-pool", True)
    assert body["data"]["selector"] == {"matchLabels": dict(LABELS)}
    assert body["data"]["virtualMachineTemplate"]["spec"] == vm_spec()


def test_p11_scaling_and_pausing_make_no_new_one():
    kept_spec = pool(generation=1)
    for change in ({"replicas": 5}, {"maxUnavailable": 1}, {"autohealing": {}}, {"updateStrategy": {"unmanaged": {}}}):
        owner = pool(generation=2, **change)
        todo = plan(snapshot(owner, vms(owner, 0, 1, 2), revisions=[revision(kept_spec, "web-1", number=1)]))
        assert kept(todo) == []


@pytest.mark.parametrize(
    "change",
    [
        {"spec": vm_spec(image="v2")},
        {"labels": {**LABELS, "tier": "front"}},
        {"template_annotations": {"note": "new"}},
        {"nameGeneration": {"appendIndexToConfigMapRefs": True}},
        {"appendPostfixToSecretReferences": True},
    ],
    ids=["spec", "labels", "annotations", "nameGeneration", "older spelling"],
)
def test_p11_a_change_of_the_template_or_of_name_generation_makes_one(change):
    owner = pool(generation=2, **change)
    todo = plan(snapshot(owner, vms(owner, 0, 1, 2), revisions=[revision(pool(), "web-1", number=1)]))
    assert kept(todo) == ["web-2"]


def test_p11_the_order_of_fields_makes_no_difference():
    spec = vm_spec()
    turned = json.loads(json.dumps(spec, sort_keys=True))
    turned["template"] = dict(reversed(turned["template"].items()))
    owner = pool(generation=2, spec=turned)
    assert plan(snapshot(owner, vms(owner, 0, 1, 2), revisions=[revision(pool(), "web-1", number=1)])) == Plan()


def test_p11_going_back_to_an_earlier_template_takes_its_revision_again():
    back = pool(generation=3, spec=vm_spec(image="v1"))
    seen = snapshot(back, vms(back, 0, 1, 2, revision="web-2"), revisions=history(1, 2))
    assert revisions_of(seen).current == "web-1"
    assert kept(plan(seen)) == []


def test_p11_of_two_that_are_alike_the_newer_is_the_current_one():
    owner = template_of(4)
    twins = [revision(template_of(4), "web-1", number=1), revision(template_of(4), "web-4", number=4)]
    seen = snapshot(owner, vms(owner, 0, 1, 2, revision="web-4"), revisions=twins)
    assert revisions_of(seen).current == "web-4"


def test_p11_a_name_that_somebody_else_has_is_made_longer():
    owner = pool(replicas=1, generation=1)
    taken = revision(owner, "web-1", number=1, owned=False)
    [name] = kept(plan(snapshot(owner, revisions=[taken])))
    assert name.startswith("web-1-")
    assert len(name) == len("web-1-") + 8


@pytest.mark.parametrize("length", [60, 61, 62, 200])
def test_p11_a_name_fits_the_label_that_its_vms_carry(length):
    owner = pool(name="x" * length, generation=10)
    [name] = kept(plan(snapshot(owner, revisions=())))
    assert len(name) <= 63
    assert name.startswith("x" * 40)
    assert (name == f"{owner.metadata.name}-10") is (length == 60)
    other = pool(name="x" * length, generation=10, spec=vm_spec(image="v2"))
    assert length == 60 or kept(plan(snapshot(other, revisions=()))) != [name]


def test_p11_what_cannot_be_read_proves_nothing():
    owner = pool(replicas=1, generation=1)
    broken = replace(revision(owner, "web-0", number=0), data=Raw(b'{"virtualMachineTemplate": 7}'))
    seen = snapshot(owner, vms(owner, 0), revisions=[broken])
    assert revisions_of(seen).templates == {}
    assert not revisions_of(seen).is_kept


@pytest.mark.parametrize(
    "data", [b'{"virtualMachineTemplate": 7}', msgspec.json.encode(pool(spec=vm_spec(image="v2")).spec)]
)
def test_p12_the_revision_of_the_present_generation_is_current_whatever_it_looks_like(data):
    owner = pool(replicas=1, generation=4)
    written = replace(revision(owner, "web-4", number=4), data=Raw(data))
    seen = snapshot(owner, vms(owner, 0, revision="web-4"), revisions=[written])
    assert revisions_of(seen).current == "web-4"
    assert plan(seen).actions == ()


def test_p12_the_revision_of_the_present_generation_is_not_current_if_another_controls_it():
    owner = pool(replicas=1, generation=4)
    foreign = revision(pool(generation=4, spec=vm_spec(image="v2")), "web-4", number=4, owned=False)
    assert revisions_of(snapshot(owner, vms(owner, 0), revisions=[foreign])).current != "web-4"


def test_p11_a_revision_that_is_being_deleted_is_not_counted_on():
    owner = pool(replicas=1)
    seen = snapshot(owner, vms(owner, 0), revisions=[revision(owner, "web-1", number=1, deleting=True)])
    assert not revisions_of(seen).is_kept


def test_p11_the_newest_that_nobody_refers_to_stay_for_undo():
    owner = template_of(6)
    machines = vms(owner, 0, 1, 2, revision="web-6")
    seen = snapshot(owner, machines, revisions=history(1, 2, 3, 4, 5, 6), revision_history=2)
    assert kept(plan(seen), Delete) == ["web-3", "web-2", "web-1"]


def test_p11_what_a_vm_or_a_vmi_refers_to_stays():
    owner = pool(generation=6, spec=vm_spec(image="v6"), updateStrategy={"opportunistic": {}})
    spec = vm_spec(image="v6", labels={**LABELS, REVISION_NAME: "web-6"})
    machines = vms(owner, 0, 1, 2, revision="web-6", spec=spec)
    running = [vmi(machines[0], revision="web-1"), *(vmi(each) for each in machines[1:])]
    todo = plan(snapshot(owner, machines, vmis=running, revisions=history(1, 2, 6), revision_history=0))
    assert kept(todo, Delete) == ["web-2"]
    unmanaged = pool(generation=6, spec=vm_spec(image="v6"), updateStrategy={"unmanaged": {}})
    old = vms(unmanaged, 0, 1, 2, revision="web-1")
    todo = plan(snapshot(unmanaged, old, vmis=(), revisions=history(1, 2, 6), revision_history=0))
    assert kept(todo, Delete) == ["web-2"]


def test_p16_nothing_is_pruned_while_anything_else_is_to_do():
    owner = pool(replicas=4, generation=6, spec=vm_spec(image="v6"))
    machines = vms(owner, 0, 1, 2, revision="web-6")
    assert kept(plan(snapshot(owner, machines, revisions=history(1, 6), revision_history=0)), Delete) == []


def test_p11_the_oldest_in_use_is_what_a_rollout_started_from():
    owner = template_of(3)
    machines = (*vms(owner, 0, revision="web-2"), *vms(owner, 1, revision="web-3"), *vms(owner, 2, revision="web-9"))
    seen = snapshot(owner, machines, revisions=history(1, 2, 3))
    assert oldest_in_use(seen, revisions_of(seen), machines) == "web-2"
    older = vms(owner, 0, revision="web-1")
    assert oldest_in_use(seen, revisions_of(seen), (*machines, *older)) == "web-1"
    done = vms(owner, 0, 1, revision="web-3")
    assert oldest_in_use(seen, revisions_of(seen), done) == "web-3"


def test_p11_many_changes_leave_the_current_one_and_the_history():
    simulation = PoolSimulation(pool(spec=vm_spec(image="v1")), revision_history=2)
    simulation.come_to_rest()
    for image in ("v2", "v3", "v4", "v5", "v2"):
        template = simulation.pool["spec"]["virtualMachineTemplate"]
        simulation.change(virtualMachineTemplate={**template, "spec": vm_spec(image=image)})
        simulation.change(replicas=4 if image == "v3" else 3)
        simulation.come_to_rest()
    assert len(simulation.revisions) == 3
    current = simulation.pool["status"]["updateRevision"]
    assert simulation.revisions[current]["data"]["virtualMachineTemplate"]["spec"] == vm_spec(image="v2")
