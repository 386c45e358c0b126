"""Expectations with the real store: writes that the store does not show yet (R9)."""

import pytest
from msgspec.structs import replace

from controller.kubevirt.resources import VMIS
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.runtime.actions import (
    AlreadyThere,
    Confirm,
    Create,
    Delete,
    Done,
    Missing,
    Outcome,
    Patch,
    Rejected,
    RemoveOwnerReference,
    Skipped,
    ThreeWayMerge,
    Unknown,
)
from controller.runtime.settle.expectations import GIVE_UP_AFTER_S, Expectations, Write
from informers.errors import Conflict, TransportError
from informers.meta import ObjectKey, OwnerReference
from informers.objects import PatchType
from informers.store import Store
from tests.builders import vmi

OWNER, VM, X, Y, Z = (ObjectKey("a", name) for name in ("web", "vm", "x", "y", "z"))
UID = "uid-1"
LOST = TransportError("connection reset", sent=True)
NO = Conflict("no", code=409)

CREATED = Create(resource=VMIS, key=VM, body=b"{}", owner_uid=UID, why="")
DELETED = Delete(resource=VMIS, key=VM, uid="old", why="")
PATCHED = Patch(resource=VMIS, key=VM, body=b"{}", type=PatchType.MERGE, why="")
REBASED = ThreeWayMerge(resource=VMIS, key=VM, uid="old", old=b"{}", new=b"{}", why="")
DISOWNED = RemoveOwnerReference(resource=VMIS, key=VM, owner_uid="old", why="")


def an_object(
    *, version: str, uid: str = "old", owner_uid: str = UID, deleting: bool = False
) -> VirtualMachineInstance:
    owner = OwnerReference(api_version="v1", kind="Set", name="web", uid=owner_uid, controller=True)
    return vmi("vm", namespace="a", uid=uid, version=version, owners=(owner,), deleting=deleting)


class ExpectationsSetup:
    """Expectations for a store. The test sets the clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.given_up = 0
        self.store: Store[VirtualMachineInstance] = Store(scopes=("a", "b"))
        self.store.advance("10", scope="a")
        self.store.advance("10", scope="b")
        self.expectations = Expectations({VMIS: self.store}, now=lambda: self.now, gave_up=self._give_up)

    def _give_up(self) -> None:
        self.given_up += 1

    def record(self, *outcomes: Outcome) -> None:
        self.expectations.record(OWNER, UID, outcomes)

    def settled(self) -> bool:
        return self.expectations.settled(OWNER, UID)


@pytest.fixture
def setup() -> ExpectationsSetup:
    return ExpectationsSetup()


@pytest.mark.parametrize(
    "outcome", [Done(CREATED, "12"), AlreadyThere(CREATED, "12"), Done(PATCHED, "12"), Done(REBASED, "12")]
)
def test_r9_a_write_is_awaited_until_the_store_has_seen_its_version(setup, outcome: Outcome):
    setup.record(outcome)
    assert not setup.settled()
    setup.store.advance("11", scope="a")
    assert setup.expectations.unsettled() == [OWNER]
    assert not setup.settled()
    setup.store.advance("12", scope="a")
    assert setup.expectations.unsettled() == []
    assert setup.settled()


def held_by_finalizer(*, uid: str = "old", finalizers: tuple[str, ...] = ("ours",)) -> VirtualMachineInstance:
    made = an_object(version="9", uid=uid, deleting=True)
    return replace(made, metadata=replace(made.metadata, finalizers=finalizers))


REMOVAL = replace(PATCHED, uid="old", finalizer="ours")


def test_r9_the_removal_of_the_last_finalizer_is_awaited_although_its_answer_has_an_old_version(setup):
    setup.store.apply(held_by_finalizer(), scope="a")
    setup.record(Done(REMOVAL, "9"))
    assert not setup.settled()
    setup.store.remove(held_by_finalizer().metadata, scope="a")
    assert setup.settled()


@pytest.mark.parametrize(
    "later",
    [
        held_by_finalizer(finalizers=("theirs",)),
        held_by_finalizer(uid="a-new-object-of-the-same-name"),
        held_by_finalizer(finalizers=("theirs", "ours")),
    ],
)
def test_r9_the_removal_of_a_finalizer_is_shown_by_a_newer_object(setup, later):
    setup.store.apply(held_by_finalizer(), scope="a")
    setup.record(Done(REMOVAL, "9"))
    setup.store.apply(replace(later, metadata=replace(later.metadata, resource_version="11")), scope="a")
    assert setup.settled()


def test_r9_after_a_restore_of_etcd_earlier_writes_are_not_awaited(setup):
    setup.record(
        Done(replace(CREATED, key=X), "14"), Done(replace(DELETED, key=Y), "15"), Unknown(replace(CREATED, key=Z), LOST)
    )
    assert not setup.settled()
    setup.store.commit(setup.store.begin_replace(scope="a"), "7", scope="a", rewound=True)
    assert setup.settled()
    setup.record(Done(replace(CREATED, key=X), "9"))
    assert not setup.settled()
    setup.store.advance("9", scope="a")
    assert setup.settled()


@pytest.mark.parametrize("version", ["", "v12", "1e3", "-12", "１２"])
def test_a_version_that_is_not_a_number_is_not_awaited(setup, version: str):
    setup.record(Done(CREATED, version))
    assert setup.settled()


def test_r9_an_object_that_the_server_does_not_have_is_awaited_until_the_cache_loses_it(setup):
    here = an_object(version="9", uid="old")
    setup.store.apply(here, scope="a")
    setup.record(Missing(replace(PATCHED, uid="another")), Missing(REBASED), Missing(DISOWNED))
    assert setup.settled(), "a VM that has left its pool is missing too, and stays"
    setup.record(Missing(replace(PATCHED, uid="old")))
    assert not setup.settled()
    setup.store.remove(here.metadata, scope="a")
    assert setup.settled()


@pytest.mark.parametrize("outcome", [Done(DELETED), Missing(DELETED)])
@pytest.mark.parametrize("shown_as", ["gone", "being deleted", "another"])
def test_r9_a_deletion_is_awaited_until_the_store_shows_it(setup, outcome: Outcome, shown_as: str):
    setup.store.apply(an_object(version="11"), scope="a")
    setup.record(outcome)
    setup.store.advance("20", scope="a")
    assert not setup.settled(), "a deletion has no version to wait for"
    match shown_as:
        case "gone":
            setup.store.remove(an_object(version="21").metadata, scope="a")
        case "being deleted":
            setup.store.apply(an_object(version="21", deleting=True), scope="a")
        case "another":
            setup.store.apply(an_object(version="21", uid="new"), scope="a")
    assert setup.settled()


@pytest.mark.parametrize(
    "outcome",
    [
        Rejected(CREATED, NO),
        Rejected(DELETED, NO),
        Skipped(CREATED),
        Done(DISOWNED, "12"),
        Unknown(DISOWNED, LOST),
        Done(Confirm(resource=VMIS, key=OWNER, uid=UID, why="")),
    ],
)
def test_a_write_that_did_not_happen_is_not_awaited(setup, outcome: Outcome):
    setup.store.apply(an_object(version="11"), scope="a")
    setup.record(outcome)
    assert setup.settled()


@pytest.mark.parametrize("write", [CREATED, DELETED, PATCHED, REBASED])
def test_r9_a_write_with_a_lost_answer_is_unresolved_at_any_version_of_the_store(
    setup: ExpectationsSetup, write: Write
):
    setup.store.apply(an_object(version="11", owner_uid="another"), scope="a")
    setup.record(Unknown(write, LOST))
    setup.store.advance("99", scope="a")
    assert not setup.settled()
    assert setup.expectations.unresolved(OWNER, UID) == (write,)
    setup.expectations.resolve(OWNER, write, None)
    assert setup.settled()


def test_r9_after_five_minutes_the_key_counts_as_settled_and_the_metric_counts_it(setup):
    setup.record(Done(CREATED, "12"), Unknown(replace(CREATED, key=X), LOST))
    setup.now += GIVE_UP_AFTER_S - 1
    assert not setup.settled()
    setup.now += 1
    assert setup.expectations.unresolved(OWNER, UID) == ()
    assert setup.settled()
    assert setup.given_up == 1
    assert setup.settled()
    assert setup.given_up == 1, "what was given up is forgotten"
