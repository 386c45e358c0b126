"""R16: which change wakes whom, and how soon."""

import pytest
from msgspec.structs import replace

from controller.apimachinery.conditions import Condition
from controller.kubevirt.annotations import DELETION_COST, PROTECT, REMOVE, ROLLING_UPDATE
from controller.kubevirt.replicaset_types import ReplicaSet, ReplicaSetStatus
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.replicaset.snapshot import REPLICASET_INDEXES
from controller.replicaset.triggers import replicasets_of_replicaset, replicasets_of_vmi
from controller.runtime.triggers import COUNT_DELAY_S
from informers.meta import OwnerReference
from informers.store import Added, Removed, Store, Updated
from tests.builders import replicaset, seconds_ago, vmi
from tests.fakes import stores

OWNER = replicaset("owner", uid="uid-owner")
RIVAL = replicaset("rival", uid="uid-rival")
OTHER_LABELS = replicaset("other-labels", uid="uid-other", match_labels={"app": "db"}, template_labels={"app": "db"})
EMPTY = replicaset("empty", uid="uid-empty", match_labels={})
ELSEWHERE = replicaset("elsewhere", uid="uid-elsewhere", namespace="elsewhere")
STRANGER = OwnerReference(api_version="apps/v1", kind="Other", name="owner", uid="uid-stranger", controller=True)

NOW_S, SOON, NEVER = {"owner": 0.0}, {"owner": COUNT_DELAY_S}, {}
ALL_THAT_MATCH = {"owner": 0.0, "rival": 0.0}


def woken_by(change) -> dict[str, float]:
    sets: Store[ReplicaSet] = Store(indexes=REPLICASET_INDEXES)
    stores.replace(sets, [OWNER, RIVAL, OTHER_LABELS, EMPTY, ELSEWHERE], "7")
    wakes = list(replicasets_of_vmi(change, sets))
    assert len({key for key, _ in wakes}) == len(wakes)
    assert all(key.namespace == "default" for key, _ in wakes)
    return {key.name: delay for key, delay in wakes}


def member(**changes) -> VirtualMachineInstance:
    return vmi(owner=OWNER, **changes)


CHANGES = {
    "a member appears": (Added(member()), NOW_S),
    "a member vanishes": (Removed(member()), NOW_S),
    "an orphan appears": (Added(vmi()), ALL_THAT_MATCH),
    "an orphan vanishes": (Removed(vmi()), ALL_THAT_MATCH),
    "an orphan that no set matches appears": (Added(vmi(labels={"a": "b"})), NEVER),
    "an orphan without labels appears": (Added(vmi(labels=None)), NEVER),
    "a stranger's vmi appears": (Added(vmi(owners=(STRANGER,))), NEVER),
    "a member of a set that is not there appears": (Added(vmi(owner=replicaset("gone", uid="gone"))), NEVER),
    "a member of an older set of that name vanishes": (Removed(vmi(owner=replicaset("owner", uid="old"))), NEVER),
    "its deletion begins": (Updated(member(), member(deleting=True)), NOW_S),
    "it finishes": (Updated(member(), member(phase="Succeeded", ready=False)), NOW_S),
    "it becomes unknown": (Updated(member(), member(phase="Unknown")), NOW_S),
    "its pod terminates": (Updated(member(), member(ready=False, reason="PodTerminating")), NOW_S),
    "it is known again": (Updated(member(phase="Unknown"), member()), NOW_S),
    "its labels change": (Updated(member(), member(labels={"myvmi": "debug"})), NOW_S),
    "it is marked for removal": (Updated(member(), member(annotations={REMOVE: "true"})), NOW_S),
    "it is protected no longer": (Updated(member(annotations={PROTECT: "true"}), member()), NOW_S),
    "it was adopted": (Updated(vmi(), member()), ALL_THAT_MATCH),
    "it was released": (Updated(member(), vmi(labels={"myvmi": "debug"})), NOW_S),
    "it was orphaned": (Updated(member(), vmi()), ALL_THAT_MATCH),
    "it changed hands": (Updated(member(), vmi(owner=RIVAL)), ALL_THAT_MATCH),
    "an orphan's labels change": (Updated(vmi(labels={"a": "b"}), vmi()), ALL_THAT_MATCH),
    "an orphan's phase changes": (Updated(vmi(phase="Pending"), vmi()), NEVER),
    "it becomes ready": (Updated(member(ready=False), member()), SOON),
    "it becomes unready": (Updated(member(), member(ready=False)), SOON),
    "it starts": (Updated(member(phase="Scheduled"), member()), SOON),
    "it gets a node": (Updated(member(node=None), member()), SOON),
    "its readiness is dated anew": (Updated(member(ready_for_s=5), member(ready_for_s=9)), NEVER),
    "its cost changes": (Updated(member(), member(annotations={DELETION_COST: "5"})), NEVER),
    "another annotation changes": (Updated(member(), member(annotations={"note": "hi"})), NEVER),
    "it is migrated": (Updated(member(), member(migrating=True)), NEVER),
    "its version alone changes": (Updated(member(), member(version="2")), NEVER),
    "it goes on terminating": (Updated(member(deleting=True), member(deleting=True, phase="Failed")), NEVER),
    "a stranger's vmi finishes": (
        Updated(vmi(owners=(STRANGER,)), vmi(owners=(STRANGER,), phase="Failed")),
        NEVER,
    ),
}


@pytest.mark.parametrize(("change", "expected"), CHANGES.values(), ids=CHANGES)
def test_r16_whom_a_vmi_wakes(change, expected):
    assert woken_by(change) == expected


def reporting(*conditions: Condition) -> ReplicaSet:
    return replace(OWNER, status=ReplicaSetStatus(replicas=1, conditions=conditions))


PAUSED = reporting(Condition(type="ReplicaPaused", status="True"))
FAILING = reporting(Condition(type="ReplicaFailure", status="True", message="3 of 3"))
FAILING_ON = reporting(Condition(type="ReplicaFailure", status="True", message="4 of 4"))


def changed(owner: ReplicaSet, **meta) -> ReplicaSet:
    return replace(owner, metadata=replace(owner.metadata, **meta))


SET_CHANGES = {
    "it appears": (Added(OWNER), 0.0),
    "it vanishes": (Removed(OWNER), 0.0),
    "its spec changes": (Updated(OWNER, replicaset("owner", uid="uid-owner", replicas=9)), 0.0),
    "its template changes": (Updated(OWNER, replicaset("owner", uid="uid-owner", spec=b'{"domain":{"x":1}}')), 0.0),
    "its generation changes": (Updated(OWNER, changed(OWNER, generation=2)), 0.0),
    "its deletion begins": (Updated(OWNER, changed(OWNER, deletion_timestamp=seconds_ago(1))), 0.0),
    "it asks for a rollout": (Updated(OWNER, changed(OWNER, annotations={ROLLING_UPDATE: "maxUnavailable=1"})), 0.0),
    "another annotation changes": (Updated(OWNER, changed(OWNER, annotations={"note": "hi"})), None),
    "its labels change": (Updated(OWNER, changed(OWNER, labels={"a": "b"})), None),
    "its version alone changes": (Updated(OWNER, changed(OWNER, resource_version="2")), None),
    "its counts are written": (Updated(OWNER, reporting()), COUNT_DELAY_S),
    "its status is wiped": (Updated(FAILING, OWNER), COUNT_DELAY_S),
    "another condition is wiped": (Updated(PAUSED, reporting()), COUNT_DELAY_S),
    "r10 its failure has another message": (Updated(FAILING, FAILING_ON), None),
}


@pytest.mark.parametrize(("change", "delay"), SET_CHANGES.values(), ids=SET_CHANGES)
def test_r16_when_a_set_wakes_itself(change, delay):
    expected = [] if delay is None else [(OWNER.metadata.key, delay)]
    assert list(replicasets_of_replicaset(change)) == expected
