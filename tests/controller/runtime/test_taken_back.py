"""What a policy or another controller takes back again and again is bounded (R4b, P22, P32)."""

from itertools import count
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from controller.kubevirt.annotations import DRAINING, PARTITION_STEP, RELEASED, ROLLED_BACK, STANDBY_STATE
from controller.kubevirt.resources import VMIS, VMS
from controller.kubevirt.standby import note_of
from controller.runtime.actions import (
    Action,
    Cause,
    Confirm,
    Create,
    Delete,
    Done,
    Patch,
    Rejected,
    ThreeWayMerge,
)
from controller.runtime.execute.births import CALM_S, MORE, ROUNDS, Owner
from controller.runtime.execute.deletes import Obstructed
from controller.runtime.execute.patches import error_of_create, error_of_labels
from controller.runtime.execute.refusals import Refusals
from informers.errors import Conflict, Invalid
from informers.meta import ObjectKey, ObjectMeta, OwnerReference
from informers.objects import PatchType, read_meta
from tests.builders import OWNER_REFERENCE, replicaset, vmi

KEY = ObjectKey("default", "vm-0")
CREATE = Create(resource=VMIS, key=KEY, body=b"{}", owner_uid="set", why="")
LEFT = Delete(resource=VMIS, key=KEY, uid="u", why="", cause=Cause.UPDATE)
GONE = Delete(resource=VMIS, key=KEY, uid="u", why="", cause=Cause.FINISHED)
OWNED: dict[str, Any] = {**OWNER_REFERENCE, "name": "set", "uid": "set"}
OWNER = msgspec.convert(OWNED, OwnerReference)


class Time:
    """A controller whose clock a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.refusals = Refusals(lambda: self.now)
        self.uids = (f"u{number}" for number in count())

    def send(
        self, action: Action, *, uid: str = "set", generation: int = 1, wanted: int = 3, claimed: int = 0
    ) -> Rejected | None:
        """The answer without a request, or None if the server gets the write and accepts it."""
        owner = Owner(ObjectKey("default", "web"), uid, generation, 3, wanted, claimed)
        answer = self.refusals.answers(owner, [(0, action)]).get(0)
        if answer is None:
            self.refusals.timed(owner, Done(action, "1", next(self.uids)))
        return answer

    def sent(self, action: Action, seconds: int, **changes: Any) -> int:
        """How often the write is sent in these seconds, if it is planned each second."""
        number = 0
        for _ in range(seconds):
            number += self.send(action, **changes) is None
            self.now += 1
        return number


def other(meta: ObjectMeta) -> ObjectMeta:
    return replace(meta, uid="another one of this name", owner_references=None)


def patch(name: str, value: str | None, uid: str = "u", version: str = "1") -> Patch:
    body = {"metadata": {"uid": uid, "resourceVersion": version, "annotations": {name: value}}}
    return Patch(resource=VMS, key=KEY, uid=uid, body=msgspec.json.encode(body), type=PatchType.MERGE, why="")


def test_r4b_members_that_go_soon_after_their_creation_are_created_in_rounds_with_a_growing_delay():
    time, most = Time(), ROUNDS * 3 + MORE
    assert sum(time.send(CREATE) is None for _ in range(100)) == most
    waits = time.send(CREATE)
    assert waits is not None
    assert (waits.wait_s, "the next one waits" in str(waits.error)) == (10, True)
    assert waits.is_repeated, "an Event has told it once in this round"
    assert [time.sent(CREATE, 60) for _ in range(4)] == [6, 3, 3, 0], "as many as wanted in each round"
    time.now += 600
    assert time.send(CREATE) is None
    assert sum(time.send(CREATE) is None for _ in range(100)) == most - 1, "no member was missing for a while"


def test_r4b_a_change_of_the_spec_allows_as_many_as_wanted_and_finished_vms_are_no_loss():
    time = Time()
    assert sum(time.send(CREATE, wanted=9) is None for _ in range(100)) == ROUNDS * 9 + MORE
    assert sum(time.send(CREATE, generation=2, wanted=9) is None for _ in range(100)) == 9
    member = vmi("a", owner=replicaset(uid="set"))
    for number in range(5):
        time.refusals.births.changed(member, None if number % 2 else replace(member, metadata=other(member.metadata)))
    assert sum(time.send(CREATE, generation=2, wanted=9) is None for _ in range(100)) == 5, "others have deleted them"
    for number in range(3):
        for action, uid in ((GONE, f"gone-{number}"), (LEFT, f"left-{number}")):
            time.send(replace(action, uid=uid), generation=2, wanted=9)
            time.refusals.births.changed(replace(member, metadata=replace(member.metadata, uid=uid)), None)
    assert sum(time.send(CREATE, generation=2, wanted=9) is None for _ in range(100)) == 3, "three have finished"
    assert sum(time.send(CREATE, generation=2, wanted=9, claimed=4) is None for _ in range(100)) == 4


def test_r4b_the_creates_of_one_plan_are_counted_together():
    time, owner = Time(), Owner(ObjectKey("default", "web"), "set", 1, 0, 3, 0)
    assert len(time.refusals.answers(owner, enumerate([CREATE] * 20))) == 20 - (ROUNDS * 3 + MORE)
    assert len(time.refusals.answers(owner, enumerate([CREATE] * 20))) == 20 - (ROUNDS * 3 + MORE), (
        "none is created yet"
    )


def test_r4b_p32_no_wanted_vm_waits_for_the_creates_of_standbys():
    body = msgspec.json.encode({"metadata": {"annotations": note_of("preparing", "vm-0")}})
    time, standby = Time(), Create(resource=VMS, key=KEY, body=body, owner_uid="set", why="")
    assert sum(time.send(standby) is None for _ in range(100)) == ROUNDS * 3 + MORE
    assert (time.send(standby) is None, time.send(CREATE) is None) == (False, True)
    time, owner = Time(), Owner(ObjectKey("default", "web"), "set", 1, 3, 3, 0)
    time.refusals.timed(owner, Rejected(standby, Invalid("a policy takes its mark back", code=422)))
    create = replace(CREATE, resource=VMS)
    assert (time.send(standby) is None, time.send(create) is None) == (False, True), "also if one was refused"


def test_r4b_a_member_that_leaves_alive_counts_in_its_first_minute_and_one_that_goes_at_once_puts_its_owner_in_doubt():
    time, member = Time(), vmi("a", uid="u1", owner=replicaset(uid="set"))
    births, alone = time.refusals.births, replace(member, metadata=replace(member.metadata, owner_references=None))
    assert sum(time.send(CREATE) is None for _ in range(100)) == 12
    births.changed(member, alone)
    assert time.send(CREATE) is not None, "a policy takes new ones away"
    births.changed(member, None)
    assert births.in_doubt == {"set"}, "the garbage collector may have deleted it"
    time.send(Confirm(resource=VMIS, key=KEY, uid="set", why=""))
    assert births.in_doubt == set()
    assert time.send(CREATE) is None, "others have deleted it"
    time.now += CALM_S
    before = sum(time.send(CREATE) is None for _ in range(100))
    births.changed(
        vmi("old", uid="old", owner=replicaset(uid="set")), replace(alone, metadata=replace(alone.metadata, uid="old"))
    )
    assert (before, time.send(CREATE) is None, births.in_doubt) == (3, True, set()), "a user takes an old one out"


def test_r4b_a_create_and_a_delete_count_also_if_their_answers_are_lost():
    time, seen = Time(), vmi("a", uid="seen", owner=replicaset(uid="set"))
    births, most = time.refusals.births, ROUNDS * 3 + MORE
    assert time.send(CREATE) is None
    for _ in range(2):
        births.changed(None, seen)
    assert sum(time.send(CREATE) is None for _ in range(100)) == most - 2, "the cache shows a member once"
    gone = replace(seen, metadata=replace(seen.metadata, uid=LEFT.uid))
    time.send(LEFT)
    births.changed(gone, None)
    assert time.send(CREATE) is not None, "the cache may show it before the answer"
    owner = Owner(ObjectKey("default", "web"), "set", 1, 3, 3, 0)
    for error, is_of_others in ((Conflict("sent twice", code=409), False), (Obstructed("it is busy", code=409), True)):
        time.refusals.answers(owner, [(0, LEFT)])
        time.refusals.timed(owner, Rejected(LEFT, error))
        births.changed(gone, None)
        assert (time.send(CREATE) is None) is is_of_others


def test_r4b_p20_while_creates_wait_no_member_is_deleted_whose_successor_would_wait():
    time, replaced = Time(), replace(LEFT, successor=b"{}")
    assert time.send(replaced) is None
    time.sent(CREATE, 30)
    assert time.send(replaced) is not None
    assert time.send(LEFT) is None, "nothing takes its place"
    time.now += 600
    assert time.send(replaced) is None


MERGE = ThreeWayMerge(resource=VMS, key=KEY, uid="u", old=b"{}", new=b"{}", why="")
TIMES = ("2026-08-01T12:00:01Z", "2026-08-01T12:00:02Z")
PATCHES: dict[str, tuple[list[Action], int]] = {
    "a template": ([MERGE], 3),
    "a mark with a later deadline": ([patch(DRAINING, f"update until {each} of x") for each in TIMES], 3),
    "a step that begins later": ([patch(PARTITION_STEP, f"abc 1 {each}") for each in TIMES], 3),
    "a return that is noted again": ([patch(ROLLED_BACK, f"abc to web-1 at {each}") for each in TIMES], 3),
    "the first release of a row": ([patch(RELEASED, f"1 {each}") for each in TIMES], 3),
    "another version of the object": ([patch("a", "b", version=each) for each in "12"], 3),
    "another time in another note": ([patch("healed", each) for each in TIMES], 60),
    "a mark that vmherd removes itself": ([patch(DRAINING, "update until x"), patch(DRAINING, None)], 60),
    "other objects": ([patch("a", "b", uid=f"{each}") for each in range(60)], 60),
}


@pytest.mark.parametrize(("patches", "at_once"), PATCHES.values(), ids=PATCHES)
def test_p22_a_patch_that_another_writer_reverts_is_sent_three_times(patches: list[Action], at_once: int):
    time = Time()
    answers = [time.send(patches[number % len(patches)]) for number in range(60)]
    assert sum(each is None for each in answers) == at_once
    if at_once < 60:
        assert "another writer or a policy changes vm-0 back" in str(answers[-1].error)
        assert time.sent(patches[0], 600) < 10


def test_p22_two_sets_whose_adoptions_of_one_object_are_reverted_send_three_each():
    time, uids = Time(), ("set", "other") * 30
    answers = [time.send(patch("ownerReferences", uid), uid=uid) for uid in uids]
    assert sum(each is None for each in answers) == 6


def test_p32_the_mark_of_a_standby_is_remembered_until_it_is_woken():
    time = Time()
    body = {"metadata": {"annotations": {STANDBY_STATE: "preparing"}}}
    time.send(Create(resource=VMS, key=KEY, body=msgspec.json.encode(body), owner_uid="set", why=""))
    assert [each[::2] for each in time.refusals.notes.values()] == [("preparing", "u0")]
    time.send(patch(STANDBY_STATE, "resting"))
    assert [each.note for each in time.refusals.notes.values()] == ["resting"]
    time.send(patch("other", "x"))
    member = replace(vmi("vm-0", uid="u0"), metadata=ObjectMeta(name="vm-0", namespace="default", uid="u0"))
    time.refusals.changed(None, replace(member, metadata=replace(member.metadata, owner_references=(OWNER,))))
    assert [each.note for each in time.refusals.notes.values()] == ["resting"]
    time.refusals.changed(None, member)
    assert time.refusals.notes == {}, "it has left its pool"
    time.send(patch(STANDBY_STATE, "resting"))
    time.send(patch(STANDBY_STATE, "woken 2026-08-01T12:00:00Z"))
    assert time.refusals.notes == {}


TAKEN: dict[str, tuple[dict[str, Any], bool]] = {
    "its owner": ({"ownerReferences": None}, True),
    "its owner and a label": ({"ownerReferences": None, "labels": {"app": "other"}}, False),
    "its owner, for another one": ({"ownerReferences": [{**OWNED, "uid": "other"}]}, False),
    "the kind of its owner": ({"ownerReferences": [{**OWNED, "kind": "ConfigMap"}]}, False),
}


@pytest.mark.parametrize(("changes", "stays"), TAKEN.values(), ids=TAKEN)
def test_r2_p22_a_vmi_that_a_policy_changes_stays_only_if_its_set_can_adopt_it(changes: dict[str, Any], stays: bool):
    kept = {"labels": {"app": "web"}, "ownerReferences": [OWNED]}
    asked, made = ({"metadata": {"name": "vm-0", "namespace": "default", **kept, **each}} for each in ({}, changes))
    action = Create(resource=VMIS, key=KEY, body=msgspec.json.encode(asked), owner_uid="set", why="")
    made = {**made, "metadata": {name: value for name, value in made["metadata"].items() if value is not None}}
    error = error_of_create(action, read_meta(msgspec.json.encode(made)))
    assert (error is None) is stays
    successor = Delete(resource=VMIS, key=action.key, uid="u", why="", successor=action.body, kept=("app",))
    assert (error_of_labels(successor, msgspec.json.encode(made)) is None) is stays
