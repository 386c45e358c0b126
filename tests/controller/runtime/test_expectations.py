"""What was written and is not shown yet, by the real store (R9)."""

from __future__ import annotations

import pytest

from controller.kubevirt.resources import VMIS
from controller.runtime.expectations import GIVE_UP_AFTER_S, Write
from controller.runtime.plan import AlreadyThere, Confirm, Done, Missing, Outcome, Rejected, Skipped, Unknown
from tests.controller.runtime.expectations_setup import (
    LOST,
    NO,
    OPAQUE,
    OWNER,
    UID,
    UNWATCHED,
    ExpectationsSetup,
    an_object,
    created,
    deleted,
    disowned,
    patched,
    rebased,
)


def test_nothing_written_is_settled():
    assert ExpectationsSetup().settled()


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
    setup = ExpectationsSetup()
    setup.record(outcome)
    assert not setup.settled()
    setup.store.advance("11", scope="a")
    assert not setup.settled()
    setup.store.advance("12", scope="a")
    assert setup.settled()


def test_r9_another_namespace_proves_nothing():
    setup = ExpectationsSetup()
    setup.record(Done(created(), "12"))
    setup.store.advance("20", scope="b")
    assert not setup.settled()


def test_r9_of_several_writes_the_last_counts():
    setup = ExpectationsSetup()
    setup.record(Done(created("x"), "14"), Done(created("y"), "12"))
    setup.record(Done(patched("z"), "13"))
    setup.store.advance("13", scope="a")
    assert not setup.settled()
    setup.store.advance("14", scope="a")
    assert setup.settled()


@pytest.mark.parametrize("version", ["", "v12", "1e3", "-12", "１２"])
def test_a_version_that_is_no_number_is_not_awaited(version: str):
    setup = ExpectationsSetup()
    setup.record(Done(created(), version))
    assert setup.settled()


def test_a_store_whose_versions_are_no_numbers_is_not_waited_for():
    setup = ExpectationsSetup()
    setup.record(Done(created(resource=OPAQUE), "12"))
    assert setup.settled()


@pytest.mark.parametrize("outcome", [Done(deleted()), Missing(deleted())])
@pytest.mark.parametrize("shown_as", ["gone", "being deleted", "another"])
def test_r9_a_deletion_is_awaited_until_the_store_shows_it(outcome: Outcome, shown_as: str):
    setup = ExpectationsSetup()
    held = an_object("vm", version="11")
    setup.store.apply(held, scope="a")
    setup.record(outcome)
    setup.store.advance("20", scope="a")
    assert not setup.settled(), "a deletion has no version to wait for"
    match shown_as:
        case "gone":
            setup.store.remove(an_object("vm", version="21"), scope="a")
        case "being deleted":
            setup.store.apply(an_object("vm", version="21", deleting=True), scope="a")
        case "another":
            setup.store.apply(an_object("vm", version="21", uid="new"), scope="a")
    assert setup.settled()


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
def test_what_was_not_written_is_not_awaited(outcome: Outcome):
    setup = ExpectationsSetup()
    setup.store.apply(an_object("vm", version="11"), scope="a")
    setup.record(outcome)
    assert setup.settled()


@pytest.mark.parametrize("write", [created(), deleted(), patched(), rebased()])
def test_r9_a_lost_answer_is_a_doubt_whatever_version_the_store_has_seen(write: Write):
    setup = ExpectationsSetup()
    setup.store.apply(an_object("vm", version="11", owner_uid="somebody-else"), scope="a")
    setup.record(Unknown(write, LOST))
    setup.store.advance("99", scope="a")
    assert not setup.settled()
    assert setup.expectations.unresolved(OWNER, UID) == (write,)
    setup.expectations.resolve(OWNER, write, None)
    assert setup.settled()


def test_r9_the_store_proves_a_lost_create():
    setup = ExpectationsSetup()
    setup.record(Unknown(created(), LOST))
    setup.store.apply(an_object("vm", version="11"), scope="a")
    assert setup.expectations.unresolved(OWNER, UID) == ()
    assert setup.settled()


def test_r9_the_store_proves_a_lost_delete():
    setup = ExpectationsSetup()
    setup.store.apply(an_object("vm", version="11"), scope="a")
    setup.record(Unknown(deleted(), LOST))
    setup.store.apply(an_object("vm", version="12", deleting=True), scope="a")
    assert setup.expectations.unresolved(OWNER, UID) == ()
    assert setup.settled()


def test_r9_what_a_doubt_turned_out_to_be_is_awaited():
    setup = ExpectationsSetup()
    write = created()
    setup.record(Unknown(write, LOST))
    setup.expectations.resolve(OWNER, write, AlreadyThere(write, "12"))
    assert setup.expectations.unresolved(OWNER, UID) == ()
    assert not setup.settled()
    setup.store.advance("12", scope="a")
    assert setup.settled()


def test_r9_after_five_minutes_the_pass_goes_on_and_it_is_counted():
    setup = ExpectationsSetup()
    setup.record(Done(created(), "12"), Unknown(created("x"), LOST))
    setup.now += GIVE_UP_AFTER_S - 1
    assert not setup.settled()
    setup.now += 1
    assert setup.expectations.unresolved(OWNER, UID) == ()
    assert setup.settled()
    assert setup.given_up == 1
    assert setup.settled()
    assert setup.given_up == 1, "what was given up is forgotten"


def test_what_arrived_at_the_last_moment_is_not_given_up():
    setup = ExpectationsSetup()
    setup.record(Done(created(), "12"))
    setup.now += GIVE_UP_AFTER_S
    setup.store.advance("12", scope="a")
    assert setup.settled()
    assert setup.given_up == 0


def test_a_set_made_anew_under_the_name_does_not_wait_for_what_the_old_one_wrote():
    setup = ExpectationsSetup()
    setup.record(Done(created(), "12"), Unknown(created("x"), LOST))
    assert setup.expectations.unresolved(OWNER, "uid-2") == ()
    assert setup.settled("uid-2")


def test_a_set_that_is_gone_leaves_nothing():
    setup = ExpectationsSetup()
    setup.record(Done(created(), "12"))
    setup.now += 10
    assert setup.expectations.oldest_s() == 10
    setup.expectations.forget(OWNER)
    assert setup.expectations.oldest_s() == 0


def test_what_no_informer_follows_is_not_awaited_but_doubted():
    setup = ExpectationsSetup()
    setup.record(Done(created(resource=UNWATCHED), "12"), Done(deleted(resource=UNWATCHED)))
    assert setup.settled()
    setup.record(Unknown(deleted(resource=UNWATCHED), LOST))
    assert not setup.settled()
    assert len(setup.expectations.unresolved(OWNER, UID)) == 1


def test_r9_the_store_proves_no_lost_rebase():
    """What it shows may be somebody else's change, or another merge of ours."""
    setup = ExpectationsSetup()
    setup.record(Unknown(rebased(), LOST))
    setup.store.apply(an_object("vm", version="50"), scope="a")
    assert setup.expectations.unresolved(OWNER, UID) == (rebased(),)
    setup.expectations.resolve(OWNER, rebased(), None)
    assert not setup.settled(), "it is this one doubt that is resolved, and not one like it"
