"""Expectations with the real store: writes that the store does not show yet (R9)."""

from __future__ import annotations

import pytest

from controller.kubevirt.resources import VMIS
from controller.runtime.expectations import GIVE_UP_AFTER_S, Write
from controller.runtime.plan import AlreadyThere, Confirm, Done, Missing, Outcome, Rejected, Skipped, Unknown
from tests.controller.runtime.awaiting import (
    LOST,
    NO,
    OPAQUE,
    OWNER,
    UID,
    UNWATCHED,
    World,
    an_object,
    created,
    deleted,
    disowned,
    patched,
    rebased,
)


def test_nothing_written_is_settled():
    assert World().settled()


@pytest.mark.parametrize(
    "outcome",
    [
        Done(created(), "12"),
        AlreadyThere(created(), "12"),
        Done(patched(), "12"),
        Done(rebased(), "12"),
    ],
)
def test_r9_a_write_is_awaited_until_the_store_has_seen_its_version(outcome: Outcome):
    world = World()
    world.record(outcome)
    assert not world.settled()
    world.store.advance("11", scope="a")
    assert not world.settled()
    world.store.advance("12", scope="a")
    assert world.settled()


def test_r9_the_version_of_another_namespace_does_not_count():
    world = World()
    world.record(Done(created(), "12"))
    world.store.advance("20", scope="b")
    assert not world.settled()


def test_r9_the_last_of_several_writes_is_awaited():
    world = World()
    world.record(Done(created("x"), "14"), Done(created("y"), "12"))
    world.record(Done(patched("z"), "13"))
    world.store.advance("13", scope="a")
    assert not world.settled()
    world.store.advance("14", scope="a")
    assert world.settled()


@pytest.mark.parametrize("version", ["", "v12", "1e3", "-12", "１２"])
def test_a_version_that_is_not_a_number_is_not_awaited(version: str):
    world = World()
    world.record(Done(created(), version))
    assert world.settled()


def test_a_store_whose_versions_are_not_numbers_is_not_awaited():
    world = World()
    world.record(Done(created(resource=OPAQUE), "12"))
    assert world.settled()


@pytest.mark.parametrize("outcome", [Done(deleted()), Missing(deleted())])
@pytest.mark.parametrize("shown_as", ["gone", "being deleted", "another"])
def test_r9_a_deletion_is_awaited_until_the_store_shows_it(outcome: Outcome, shown_as: str):
    world = World()
    held = an_object("vm", version="11")
    world.store.apply(held, scope="a")
    world.record(outcome)
    world.store.advance("20", scope="a")
    assert not world.settled(), "a deletion has no version to wait for"
    match shown_as:
        case "gone":
            world.store.remove(an_object("vm", version="21"), scope="a")
        case "being deleted":
            world.store.apply(an_object("vm", version="21", deleting=True), scope="a")
        case "another":
            world.store.apply(an_object("vm", version="21", uid="new"), scope="a")
    assert world.settled()


@pytest.mark.parametrize(
    "outcome",
    [
        Rejected(created(), NO),
        Rejected(deleted(), NO),
        Skipped(created()),
        Missing(patched()),
        Missing(rebased()),
        Done(disowned(), "12"),
        Missing(disowned()),
        Unknown(disowned(), LOST),
        Done(Confirm(resource=VMIS, key=OWNER, uid=UID, why="")),
    ],
)
def test_a_write_that_did_not_happen_is_not_awaited(outcome: Outcome):
    world = World()
    world.store.apply(an_object("vm", version="11"), scope="a")
    world.record(outcome)
    assert world.settled()


@pytest.mark.parametrize("write", [created(), deleted(), patched(), rebased()])
def test_r9_a_write_with_a_lost_answer_is_unresolved_at_any_version_of_the_store(write: Write):
    world = World()
    world.store.apply(an_object("vm", version="11", owner_uid="somebody-else"), scope="a")
    world.record(Unknown(write, LOST))
    world.store.advance("99", scope="a")
    assert not world.settled()
    assert world.expectations.unresolved(OWNER, UID) == (write,)
    world.expectations.resolve(OWNER, write, None)
    assert world.settled()


def test_r9_the_store_confirms_a_lost_create():
    world = World()
    world.record(Unknown(created(), LOST))
    world.store.apply(an_object("vm", version="11"), scope="a")
    assert world.expectations.unresolved(OWNER, UID) == ()
    assert world.settled()


def test_r9_the_store_confirms_a_lost_delete():
    world = World()
    world.store.apply(an_object("vm", version="11"), scope="a")
    world.record(Unknown(deleted(), LOST))
    world.store.apply(an_object("vm", version="12", deleting=True), scope="a")
    assert world.expectations.unresolved(OWNER, UID) == ()
    assert world.settled()


def test_r9_the_outcome_of_a_resolved_write_is_awaited():
    world = World()
    write = created()
    world.record(Unknown(write, LOST))
    world.expectations.resolve(OWNER, write, AlreadyThere(write, "12"))
    assert world.expectations.unresolved(OWNER, UID) == ()
    assert not world.settled()
    world.store.advance("12", scope="a")
    assert world.settled()


def test_r9_after_five_minutes_the_key_counts_as_settled_and_the_metric_counts_it():
    world = World()
    world.record(Done(created(), "12"), Unknown(created("x"), LOST))
    world.now += GIVE_UP_AFTER_S - 1
    assert not world.settled()
    world.now += 1
    assert world.expectations.unresolved(OWNER, UID) == ()
    assert world.settled()
    assert world.given_up == 1
    assert world.settled()
    assert world.given_up == 1, "what was given up is forgotten"


def test_an_expectation_that_is_met_at_the_deadline_is_not_given_up():
    world = World()
    world.record(Done(created(), "12"))
    world.now += GIVE_UP_AFTER_S
    world.store.advance("12", scope="a")
    assert world.settled()
    assert world.given_up == 0


def test_a_new_set_of_the_same_name_does_not_wait_for_writes_of_the_old_set():
    world = World()
    world.record(Done(created(), "12"), Unknown(created("x"), LOST))
    assert world.expectations.unresolved(OWNER, "uid-2") == ()
    assert world.settled("uid-2")


def test_a_deleted_set_leaves_no_expectations():
    world = World()
    world.record(Done(created(), "12"))
    world.now += 10
    assert world.expectations.oldest_s() == 10
    world.expectations.forget(OWNER)
    assert world.expectations.oldest_s() == 0


def test_a_resource_without_a_store_is_not_awaited_but_can_be_unresolved():
    world = World()
    world.record(Done(created(resource=UNWATCHED), "12"), Done(deleted(resource=UNWATCHED)))
    assert world.settled()
    world.record(Unknown(deleted(resource=UNWATCHED), LOST))
    assert not world.settled()
    assert len(world.expectations.unresolved(OWNER, UID)) == 1


def test_r9_the_store_does_not_confirm_a_lost_merge():
    """The store may show a change of another writer, or another merge of ours."""
    world = World()
    world.record(Unknown(rebased(), LOST))
    world.store.apply(an_object("vm", version="50"), scope="a")
    assert world.expectations.unresolved(OWNER, UID) == (rebased(),)
    world.expectations.resolve(OWNER, rebased(), None)
    assert not world.settled(), "it is this one doubt that is resolved, and not one like it"
