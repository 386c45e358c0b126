"""R16: which sets a change triggers, and the delay. R2, R5: the snapshot of a set."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from controller.apimachinery import label_selectors
from controller.apimachinery.indexes import NAMESPACE
from controller.apimachinery.label_selectors import LabelSelector, SelectorRequirement, parse_selector
from controller.kubevirt.annotations import DELETION_COST, DRAINED, PROTECT, REMOVE
from controller.kubevirt.replicaset_types import ReplicaSet
from controller.kubevirt.resources import VMIS
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.replicaset.rosters import VMIRosters
from controller.replicaset.rules import ReplicaSetRules
from controller.replicaset.snapshot import REPLICASET_INDEXES, VMI_INDEXES, Snapshot
from controller.replicaset.triggers import replicasets_of_vmi
from controller.runtime.triggers import COUNT_DELAY_S
from informers.meta import ObjectKey, OwnerReference
from informers.store import Added, Removed, Store, Updated
from tests.builders import NOW, REPLICASETS, no_revisions, replicaset, vmi
from tests.fakes import stores

OWNER = replicaset("owner", uid="uid-owner")
RIVAL = replicaset("rival", uid="uid-rival")
OTHER_LABELS = replicaset("other-labels", uid="uid-other", match_labels={"app": "db"}, template_labels={"app": "db"})
EMPTY = replicaset("empty", uid="uid-empty", match_labels={})
ELSEWHERE = replicaset("elsewhere", uid="uid-elsewhere", namespace="elsewhere")
OTHER_CONTROLLER = OwnerReference(api_version="apps/v1", kind="Other", name="owner", uid="another-uid", controller=True)

AT_ONCE, DELAYED, NO_PASS = {"owner": 0.0}, {"owner": COUNT_DELAY_S}, {}
ALL_MATCHING = {"owner": 0.0, "rival": 0.0}


def triggered_by(change) -> dict[str, float]:
    sets: Store[ReplicaSet] = Store(indexes=REPLICASET_INDEXES)
    stores.replace(sets, [OWNER, RIVAL, OTHER_LABELS, EMPTY, ELSEWHERE], "7")
    wakes = list(replicasets_of_vmi(change, sets))
    assert len({key for key, _ in wakes}) == len(wakes)
    assert all(key.namespace == "default" for key, _ in wakes)
    return {key.name: delay for key, delay in wakes}


def member(**changes) -> VirtualMachineInstance:
    return vmi(owner=OWNER, **changes)


FOREIGN = vmi(owners=(OTHER_CONTROLLER,))
CHANGES = {
    "a member appears": (Added(member()), AT_ONCE),
    "a member vanishes": (Removed(member()), AT_ONCE),
    "an orphan appears": (Added(vmi()), ALL_MATCHING),
    "an orphan vanishes": (Removed(vmi()), ALL_MATCHING),
    "an orphan that no set matches appears": (Added(vmi(labels={"a": "b"})), NO_PASS),
    "an orphan without labels appears": (Added(vmi(labels=None)), NO_PASS),
    "a vmi of another controller appears": (Added(FOREIGN), NO_PASS),
    "a member of an unknown set appears": (Added(vmi(owner=replicaset("gone", uid="gone"))), NO_PASS),
    "a member of an older set of that name vanishes": (Removed(vmi(owner=replicaset("owner", uid="old"))), NO_PASS),
    "its deletion begins": (Updated(member(), member(deleting=True)), AT_ONCE),
    "it finishes": (Updated(member(), member(phase="Succeeded", ready=False)), AT_ONCE),
    "it becomes unknown": (Updated(member(), member(phase="Unknown")), AT_ONCE),
    "its pod terminates": (Updated(member(), member(ready=False, reason="PodTerminating")), AT_ONCE),
    "it is known again": (Updated(member(phase="Unknown"), member()), AT_ONCE),
    "its labels change": (Updated(member(), member(labels={"myvmi": "debug"})), AT_ONCE),
    "it is marked for removal": (Updated(member(), member(annotations={REMOVE: "true"})), AT_ONCE),
    "its protection is removed": (Updated(member(annotations={PROTECT: "true"}), member()), AT_ONCE),
    "it was adopted": (Updated(vmi(), member()), ALL_MATCHING),
    "it was released": (Updated(member(), vmi(labels={"myvmi": "debug"})), AT_ONCE),
    "it was orphaned": (Updated(member(), vmi()), ALL_MATCHING),
    "its controller changes": (Updated(member(), vmi(owner=RIVAL)), ALL_MATCHING),
    "an orphan's labels change": (Updated(vmi(labels={"a": "b"}), vmi()), ALL_MATCHING),
    "an orphan's phase changes": (Updated(vmi(phase="Pending"), vmi()), NO_PASS),
    "it becomes ready": (Updated(member(ready=False), member()), DELAYED),
    "it becomes unready": (Updated(member(), member(ready=False)), DELAYED),
    "it starts": (Updated(member(phase="Scheduled"), member()), DELAYED),
    "it gets a node": (Updated(member(node=None), member()), DELAYED),
    "only the time of its readiness changes": (Updated(member(ready_for_s=5), member(ready_for_s=9)), NO_PASS),
    "its cost changes": (Updated(member(), member(annotations={DELETION_COST: "5"})), NO_PASS),
    "another annotation changes": (Updated(member(), member(annotations={"note": "hi"})), NO_PASS),
    "it is migrated": (Updated(member(), member(migrating=True)), NO_PASS),
    "only its version changes": (Updated(member(), member(version="2")), NO_PASS),
    "it fails during its deletion": (Updated(member(deleting=True), member(deleting=True, phase="Failed")), NO_PASS),
    "a VMI of another controller ends": (Updated(FOREIGN, vmi(owners=(OTHER_CONTROLLER,), phase="Failed")), NO_PASS),
}


@pytest.mark.parametrize(("change", "expected"), CHANGES.values(), ids=CHANGES)
def test_r16_which_sets_a_change_of_a_vmi_triggers(change, expected):
    assert triggered_by(change) == expected


IN_TIERS = LabelSelector(match_expressions=(SelectorRequirement(key="tier", operator="In", values=("a", "b", "a")),))
NOT_OLD = LabelSelector(match_expressions=(SelectorRequirement(key="old", operator="DoesNotExist"),))
TWO_LABELS = LabelSelector(match_labels={"app": "web", "tier": "a"})


@pytest.mark.parametrize(
    ("selector", "labels", "adopts"),
    [
        (IN_TIERS, {"tier": "b"}, True),
        (IN_TIERS, {"tier": "c"}, False),
        (NOT_OLD, {"tier": "b"}, True),
        (NOT_OLD, {"old": "yes"}, False),
        (TWO_LABELS, {"app": "web", "tier": "a"}, True),
        (TWO_LABELS, {"app": "web", "tier": "b"}, False),
        (TWO_LABELS, {"app": "web"}, False),
    ],
)
def test_r16_an_orphan_starts_a_pass_for_each_form_of_selector_that_matches(selector, labels, adopts):
    found = replace(OWNER, spec=replace(OWNER.spec, selector=selector))
    sets: Store[ReplicaSet] = Store(indexes=REPLICASET_INDEXES)
    stores.replace(sets, [found], "7")
    wakes = list(replicasets_of_vmi(Added(vmi(labels=labels)), sets))
    assert wakes == ([(OWNER.metadata.key, 0.0)] if adopts else [])


def test_r16_an_orphan_parses_no_selector_of_the_sets_with_other_labels(monkeypatch):
    parsed = []
    monkeypatch.setattr(label_selectors, "parse_selector", lambda wire: parsed.append(wire) or parse_selector(wire))
    sets: Store[ReplicaSet] = Store(indexes=REPLICASET_INDEXES)
    owners = [replicaset(f"s{n}", uid=f"uid-{n}", match_labels={"app": f"a{n}"}) for n in range(1000)]
    stores.replace(sets, owners, "7")
    assert list(replicasets_of_vmi(Added(vmi(labels={"app": "a7"})), sets)) == [(owners[7].metadata.key, 0.0)]
    assert len(parsed) == 1


def test_r5_the_name_of_a_vmi_that_went_is_free_after_ten_minutes() -> None:
    owner = replicaset(replicas=1)
    sets, vmis = Store(indexes=REPLICASET_INDEXES), Store(indexes=VMI_INDEXES)
    sets.apply(owner)
    rules = ReplicaSetRules(sets, vmis, REPLICASETS, VMIRosters(vmis), no_revisions(), burst=250)

    def name_after(minutes: float) -> str:
        seen = rules.take_snapshot(owner.metadata.key, now=NOW + timedelta(minutes=minutes), settled=True)
        assert seen is not None
        [create] = [each for each in rules.plan(seen).actions if each.resource is VMIS]
        return create.key.name

    first = name_after(0)
    made = vmi(first, owner=owner)
    vmis.apply(made)
    for change in vmis.remove(made.metadata):
        rules.gone.handle(change)
    assert first not in {name_after(1), name_after(10)}
    assert name_after(11) == first


def taken_from(*objects: ReplicaSet | VirtualMachineInstance) -> Snapshot | None:
    replicasets: Store[ReplicaSet] = Store(indexes=REPLICASET_INDEXES)
    vmis: Store[VirtualMachineInstance] = Store(indexes=VMI_INDEXES)
    stores.replace(replicasets, [obj for obj in objects if isinstance(obj, ReplicaSet)], "7")
    stores.replace(vmis, [obj for obj in objects if isinstance(obj, VirtualMachineInstance)], "7")
    rules = ReplicaSetRules(replicasets, vmis, REPLICASETS, VMIRosters(vmis), no_revisions(), burst=250)
    seen = rules.take_snapshot(ObjectKey("default", "testreplicaset"), now=NOW, settled=True)
    vmis.apply(vmi("later", owner=replicaset(), version="9"))  # A snapshot does not change with the cache.
    return seen


def names(vmis) -> set[str]:
    return {vmi.metadata.name for vmi in vmis}


def test_a_set_that_is_not_in_the_cache_has_no_snapshot():
    assert taken_from(replicaset("another")) is None


def test_r2_members_are_vmis_whose_controller_has_the_uid_of_the_set():
    owner, namesake = replicaset(), replicaset(uid="an-older-set-of-that-name")
    seen = taken_from(owner, vmi("ours", owner=owner), vmi("theirs", owner=namesake), vmi("orphan"))
    assert names(seen.members) == {"ours"}


def test_r2_orphans_are_vmis_without_a_controller_that_the_set_may_adopt_or_has_created():
    owner, other = replicaset(), replicaset("other", uid="other")
    strange = {"labels": {"app": "strange"}}
    noted = vmi("testreplicasetabcde", annotations={DRAINED: "1"}, **strange)
    members = vmi("ours", owner=owner), vmi("theirs", owner=other)
    seen = taken_from(owner, other, vmi("orphan"), noted, vmi("strange", **strange), *members)
    assert names(seen.orphans) == {"orphan", "testreplicasetabcde"}
    assert taken_from(owner, vmi("orphan", namespace="elsewhere")).orphans == ()


def test_r5_names_in_use_include_all_vmis_of_the_namespace():
    owner, other = replicaset(), replicaset("other", uid="other")
    seen = taken_from(owner, vmi("theirs", owner=other), vmi("elsewhere", namespace="elsewhere"))
    assert "theirs" in seen.taken
    assert "elsewhere" not in seen.taken
    assert 5 not in seen.taken


def test_only_the_index_of_namespaces_contains_the_vmi_of_a_vm():
    of = OwnerReference(api_version="kubevirt.io/v1", kind="VirtualMachine", name="vm", uid="uid-vm", controller=True)
    of_vm = vmi("vm", owners=(of,))
    found = {name: list(function(of_vm)) for name, function in VMI_INDEXES.items()}
    assert {name: values for name, values in found.items() if values} == {NAMESPACE: ["default"]}
