"""P11, P12: the revisions of a pool. Templates are compared by meaning, and unreadable revisions are left alone."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from controller.kubevirt import annotations as names
from controller.kubevirt.resources import CONTROLLER_REVISIONS
from controller.kubevirt.vm_types import ControllerRevision
from controller.pool.members.revisions import oldest_in_use
from controller.pool.plan import plan
from controller.pool.status import next_status
from controller.replicas.revisions import kept_revision
from controller.runtime.actions import Create, Delete, Patch, Plan, Rejected, ThreeWayMerge
from tests.builders import NOW
from tests.fakes.requests import refusal
from tests.pool_builders import LABELS, POOLS, intent_of, pool, revision, revisions_of, snapshot, vm_spec, vmi, vms
from tests.pool_scenes import new_vms
from tests.spelling import RECORDINGS, paths_where_presence_matters, respelled, vm_specs, with_presence


def revisions_in(todo, kind=Create):
    return [each.key.name for each in todo.actions if isinstance(each, kind) and each.resource is CONTROLLER_REVISIONS]


def template_of(number):
    return pool(generation=number, spec=vm_spec(image=f"v{number}"))


def history(*numbers):
    return [revision(template_of(number), number=number) for number in numbers]


def test_p11_a_revision_is_named_after_the_generation_and_belongs_to_the_pool():
    _, create, *_ = plan(snapshot(pool(replicas=1, generation=7), revisions=())).actions
    body = json.loads(create.body)
    assert create.key == ("default", "web-7")
    assert create.owner_uid == "uid-of-the-pool"
    assert (body["apiVersion"], body["kind"], body["revision"]) == ("apps/v1", "ControllerRevision", 7)
    [reference] = body["metadata"]["ownerReferences"]
    assert (reference["uid"], reference["controller"]) == ("uid-of-the-pool", True)
    assert body["data"]["selector"] == {"matchLabels": dict(LABELS)}
    assert body["data"]["virtualMachineTemplate"]["spec"] == vm_spec()
    assert body["metadata"]["labels"] == {names.POOL_UID: "uid-of-the-pool"}


SYSPREP = vm_spec(volumes=[{"name": "answers", "sysprep": {"secret": {"name": "s"}}}])
INDEXED = {"nameGeneration": {"appendIndexToSecretRefs": True}, "spec": SYSPREP}
ASKED = {names.INDEX_SYSPREP: "true"}


@pytest.mark.parametrize("asked", [True, False], ids=["added", "removed"])
def test_p5_a_change_of_the_sysprep_annotation_is_a_change_of_the_template(asked):
    owner = pool(replicas=1, annotations=ASKED if asked else None, **INDEXED)
    before = revision(owner, number=1, annotations=None if asked else ASKED)
    todo = plan(snapshot(owner, vms(owner, 0), revisions=[before]))
    [create] = [each for each in todo.actions if isinstance(each, Create)]
    [merge] = [each for each in todo.actions if isinstance(each, ThreeWayMerge)]
    volumes = [json.loads(each)["spec"]["template"]["spec"]["volumes"][-1] for each in (merge.old, merge.new)]
    assert [each["sysprep"]["secret"]["name"] for each in volumes] == (["s", "s-0"] if asked else ["s-0", "s"])
    assert create.key.name != "web-1", "both revisions belong to the first generation"
    made = revision(owner, create.key.name, number=1, annotations=ASKED if asked else None)
    at_rest = snapshot(owner, vms(owner, 0, revision=create.key.name), revisions=[before, made])
    assert plan(at_rest) == Plan()


@pytest.mark.parametrize(
    "change",
    [
        {"spec": vm_spec(image="v2")},
        {"labels": {**LABELS, "tier": "front"}},
        {"template_annotations": {"note": "new"}},
        {"nameGeneration": {"appendIndexToConfigMapRefs": True}},
        {"appendPostfixToConfigMapReferences": True},
    ],
    ids=["spec", "labels", "annotations", "nameGeneration", "older spelling"],
)
def test_p11_a_change_of_the_template_or_of_name_generation_creates_a_revision(change):
    spec = vm_spec(volumes=[{"name": "extra", "configMap": {"name": "app"}}])
    owner = pool(generation=2, **{"spec": spec, **change})
    todo = plan(snapshot(owner, vms(owner, 0, 1, 2), revisions=[revision(pool(spec=spec), "web-1", number=1)]))
    assert revisions_in(todo) == ["web-2"]


REORDERED = {name: vm_spec()[name] for name in reversed(vm_spec())}
SAME_TEMPLATE = {
    "replicas": {"replicas": 5},
    "maxUnavailable": {"maxUnavailable": 1},
    "autohealing": {"autohealing": {}},
    "the strategy": {"updateStrategy": {"unmanaged": {}}},
    "the order of fields": {"spec": REORDERED | {"template": dict(reversed(vm_spec()["template"].items()))}},
    "sysprep without a sysprep volume": {"annotations": ASKED, "nameGeneration": INDEXED["nameGeneration"]},
}


@pytest.mark.parametrize("change", SAME_TEMPLATE.values(), ids=SAME_TEMPLATE)
def test_p11_other_changes_create_no_revision_and_change_no_vm(change):
    owner = pool(generation=2, **change)
    todo = plan(snapshot(owner, vms(owner, 0, 1, 2), revisions=[revision(pool(), "web-1", number=1)]))
    assert revisions_in(todo) == []
    assert {type(each) for each in todo.actions} <= {Create}
    assert todo == Plan() or change.keys().isdisjoint({"spec", "annotations"})


def test_p11_which_revision_is_current():
    """A return to an earlier template uses its revision again. Of two equal revisions, the newer one is current."""
    equal = [revision(template_of(4), "web-1", number=1), revision(template_of(4), "web-4", number=4)]
    foreign = revision(pool(generation=4, spec=vm_spec(image="v2")), "web-4", number=4, owned=False)
    for owner, known, current in (
        (pool(generation=3, spec=vm_spec(image="v1")), history(1, 2), "web-1"),
        (template_of(4), equal, "web-4"),
    ):
        seen = snapshot(owner, vms(owner, 0, 1, 2, revision="web-2"), revisions=known)
        assert (revisions_of(seen).current, revisions_in(plan(seen))) == (current, [])
    assert revisions_of(snapshot(pool(generation=4), revisions=[foreign])).current != "web-4"


@pytest.mark.parametrize(
    "data", [b'{"virtualMachineTemplate": 7}', msgspec.json.encode(pool(spec=vm_spec(image="v2")).spec)]
)
def test_p12_the_revision_of_the_present_generation_is_current_whatever_it_contains(data):
    owner = pool(replicas=1, generation=4)
    written = replace(revision(owner, "web-4", number=4), data=Raw(data))
    seen = snapshot(owner, vms(owner, 0, revision="web-4"), revisions=[written])
    assert revisions_of(seen).current == "web-4"
    assert plan(seen).actions == ()


def test_p11_a_pool_with_the_name_of_a_deleted_pool_uses_none_of_the_earlier_names():
    """The garbage collector may need a while for the revisions of earlier pools. Several of them may be left."""
    owner, known = pool(replicas=1), ["web-1"]
    for _ in range(4):
        left = [revision(owner, name, number=1, owned=False, deleting=True) for name in known]
        seen = snapshot(owner, revisions=left)
        assert not revisions_of(seen).current_exists
        [name] = revisions_in(plan(seen))
        assert name not in known
        assert revisions_in(plan(seen), Delete) == []
        known.append(name)
    assert len(set(known)) == 5


def test_p11_the_newest_unused_revisions_stay_for_undo():
    owner = template_of(6)
    machines = vms(owner, 0, 1, 2, revision="web-6")
    seen = snapshot(owner, machines, revisions=history(1, 2, 3, 4, 5, 6), revision_history=2)
    assert revisions_in(plan(seen), Delete) == ["web-3", "web-2", "web-1"]
    *_, delete = plan(seen).actions
    kept = history(1)[0].metadata
    assert (delete.key, delete.version, delete.owner_uid) == (kept.key, kept.resource_version, owner.metadata.uid)


def test_p11_the_noted_revision_of_an_update_in_steps_stays_although_no_vm_has_it():
    """A scale-out in a step creates VMs with it."""
    step = f"{intent_of(template_of(3)).template.digest} 1 75%:60s,0 since {NOW.isoformat()}"
    notes = {names.PARTITION: "75%:60s,0", names.PARTITION_REVISION: "web-1", names.PARTITION_STEP: step}
    owner = pool(replicas=1, generation=3, spec=vm_spec(image="v3"), annotations=notes)
    seen = snapshot(owner, vms(owner, 0, revision="web-3"), revisions=history(1, 2, 3), revision_history=0)
    assert revisions_in(plan(seen), Delete) == ["web-2"]


def test_r17_a_new_revision_names_the_one_of_most_ready_vms_which_stays():
    machines = [*vms(pool(), 0, 1, revision="web-1"), *vms(pool(), 2, revision="web-2")]
    create = plan(snapshot(template_of(3), machines, revisions=history(1, 2))).actions[0]
    assert json.loads(create.body)["metadata"]["annotations"] == {names.READY_REVISION: "web-1"}
    newest = revision(template_of(6), number=6, annotations={names.READY_REVISION: "web-1"})
    members, known = vms(pool(), 0, 1, 2, revision="web-6"), [*history(1, 2, 3), newest]
    seen = snapshot(template_of(6), members, revisions=known, revision_history=1)
    assert revisions_in(plan(seen), Delete) == ["web-2"]


def test_p11_a_revision_that_a_vm_or_a_vmi_uses_is_not_deleted():
    owner = pool(generation=6, spec=vm_spec(image="v6"), updateStrategy={"opportunistic": {}})
    spec = vm_spec(image="v6", labels={**LABELS, names.REVISION_NAME: "web-6"})
    machines = vms(owner, 0, 1, 2, revision="web-6", spec=spec)
    running = [vmi(machines[0], revision="web-1"), *(vmi(each) for each in machines[1:])]
    todo = plan(snapshot(owner, machines, vmis=running, revisions=history(1, 2, 6), revision_history=0))
    assert revisions_in(todo, Delete) == ["web-2"]


def test_p11_a_template_that_is_rolled_out_again_has_the_newest_number():
    owner = pool(generation=3, spec=vm_spec(image="v1"))
    machines = new_vms(owner, 0, 1, 2)
    todo = plan(snapshot(owner, machines, revisions=history(1, 2)))
    assert revisions_in(todo, Patch) == ["web-1"]
    [patch] = [each for each in todo.actions if isinstance(each, Patch)]
    assert json.loads(patch.body)["revision"] == 3
    assert todo.stages[0].actions == (patch,), "a crash before the next write would leave VMs with an old number"
    assert not todo.stages[0].essential
    refused = Rejected(patch, refusal(403, "Forbidden", "no"))
    failure = next_status(snapshot(owner, machines), [refused]).conditions[0]
    assert (failure.type, failure.reason) == ("ReplicaFailure", "FailedUpdate")
    numbered = [replace(each, revision=3) if each.revision == 1 else each for each in history(1, 2)]
    assert revisions_in(plan(snapshot(owner, machines, revisions=numbered)), Patch) == []


def test_p11_an_updated_vm_counts_with_its_old_revision_until_its_vmi_runs_the_new_template():
    owner = template_of(3)
    machines = vms(owner, 0, 1, revision="web-3")
    assert oldest_of(owner, machines, vmis=[vmi(machines[0], revision="web-2"), vmi(machines[1])]) == "web-2"
    assert oldest_of(owner, machines, vmis=[vmi(machines[1])]) == "web-3"


def oldest_of(owner, machines, **circumstances) -> str:
    seen = snapshot(owner, machines, revisions=history(1, 2, 3), **circumstances)
    return oldest_in_use(seen, revisions_of(seen))


def kept(spec):
    """A revision with this VM spec, from an earlier generation of the pool.

    The generation alone does not show whether the revision is current, so the plan must compare the templates.
    """
    return revision(pool(spec=spec), "web-1", number=1)


def seen(spec, revisions, *, generation=7, **fields):
    owner = pool(spec=spec, generation=generation, **fields)
    return snapshot(owner, vms(owner, 0, 1, 2, revision="web-1"), revisions=revisions)


@given(st.data(), vm_specs())
def test_p12_a_pool_or_a_revision_in_another_spelling_plans_nothing(data, spec):
    for_pool, for_revision = data.draw(respelled(spec)), data.draw(respelled(spec))
    assert plan(seen(for_pool, [kept(for_revision)])).actions == ()


@given(st.data(), vm_specs(), st.sampled_from(paths_where_presence_matters()))
def test_p12_an_empty_object_that_has_a_meaning_is_a_change(data, spec, path):
    changed = with_presence(spec, path)
    before, after = data.draw(respelled(spec)), data.draw(respelled(changed))
    actions = plan(seen(after, [kept(before)])).actions
    if changed == spec:
        assert actions == ()
    else:
        assert {type(action) for action in actions} == {Create, ThreeWayMerge}


@pytest.mark.parametrize("number", [1, 7], ids=["of an older generation", "of this generation"])
@pytest.mark.parametrize(
    "name", ["kubevirt-pool-revision", "kubevirt-pool-revision-unit", "kubevirt-pool-revision-nosize"]
)
def test_p12_a_pool_with_a_revision_by_kubevirt_plans_nothing(name, number):
    recorded = json.loads((RECORDINGS / f"{name}.json").read_text())
    assert plan(taken_over(recorded["pool"], recorded["revision"], number=number)).actions == ()


def taken_over(document, written, *, number):
    """A recorded pool in generation 7. The pool has the recorded revision `written`, with the revision number `number`.
    Two VMs use this revision.
    """
    document["metadata"]["generation"] = 7
    document["spec"]["replicas"] = 2
    owner = POOLS.decode(msgspec.json.encode(document))
    kept_revision: ControllerRevision = CONTROLLER_REVISIONS.decode(msgspec.json.encode(written))
    meta = {"namespace": owner.metadata.namespace, "labels": document["spec"]["selector"]["matchLabels"]}
    spec = document["spec"]["virtualMachineTemplate"]["spec"]
    machines = vms(owner, 0, 1, revision=written["metadata"]["name"], spec=spec, **meta)
    return snapshot(owner, machines, revisions=[replace(kept_revision, revision=number)])


LARGE: dict[str, Any] = vm_spec(disks=("data",))
LARGE["template"]["spec"]["networks"] = [{"name": f"n{number}"} for number in range(257)]


def seen_with(data: bytes | None, **more: Any) -> Any:
    """A pool with a valid template, whose VMs have an earlier revision with this data, or none if it is None."""
    owner, past = pool(generation=2, **more), revision(pool(spec=LARGE, generation=1), "web-1")
    earlier = past if data == b"" else replace(past, data=Raw(data or b""))
    revisions = [] if data is None else [earlier]
    return snapshot(owner, vms(owner, 0, 1, 2, revision="web-1"), revisions=revisions)


@pytest.mark.parametrize("data", [b"", b"{}", b"[", b'{"virtualMachineTemplate": 1}'])
def test_p30_a_vm_whose_revision_cannot_be_read_waits_for_its_user(data: bytes) -> None:
    seen = seen_with(data)
    todo = plan(seen)
    assert not [each for each in todo.actions if isinstance(each, ThreeWayMerge | Delete)]
    assert "its revision web-1 cannot be read" in todo.held
    assert [each.reason for each in todo.notices] == ["UpdateHeld"] * 3
    status = next_status(seen, (), plan(seen).waits)
    assert (status.updated_replicas, status.ready_replicas) == (0, 3)
    assert "web-0 waits: its revision web-1 cannot be read" in (status.problem or "")


def test_p11_a_revision_whose_owner_was_removed_is_still_that_of_its_pool():
    owner = pool(replicas=1)
    [machine] = vms(owner, 0)
    former = revision(owner, number=1, owned=None, labels={names.POOL_UID: owner.metadata.uid})
    kept = kept_revision(former)
    assert kept is not None
    seen = snapshot(owner, [machine], vmis=[vmi(machine)], revisions=[kept])
    assert (plan(seen).actions, next_status(seen, ()).updated_replicas) == ((), 1)
