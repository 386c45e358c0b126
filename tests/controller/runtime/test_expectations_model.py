"""Property test: expectations behave like a simple model for any sequence of writes, events and lost answers (R9)."""

from collections.abc import Callable, Iterable
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from controller.kubevirt.resources import VMIS
from controller.runtime.actions import (
    AlreadyThere,
    AnyResource,
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
from controller.runtime.settle.expectations import GIVE_UP_AFTER_S, Write
from informers.meta import ObjectKey
from informers.store import Store
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


class Item:
    """One expectation of the model: a write, and a condition. If the condition is true for the stores, the write is
    confirmed.
    """

    def __init__(self, is_over: Callable[[], bool], doubt: Write | None = None) -> None:
        self.is_over = is_over
        self.doubt = doubt


KEYS = st.sampled_from([OWNER, ObjectKey("b", "db")])
UIDS = st.sampled_from([UID, "uid-2"])
NAMES = st.sampled_from(["x", "y"])
NAMESPACES = st.sampled_from(["a", "b"])
OBJECT_UIDS = st.sampled_from(["old", "new"])
"""The last parts of the UIDs. The first part is different for each object, so two objects never have the same UID."""

RESOURCES = st.sampled_from([VMIS, VMIS, VMIS, OPAQUE, UNWATCHED])
WRITES = st.one_of(
    st.builds(created, NAMES, resource=RESOURCES, namespace=NAMESPACES),
    st.builds(
        lambda name, uid, resource, namespace: deleted(
            name, uid_of(resource, namespace, name, uid), resource=resource, namespace=namespace
        ),
        NAMES,
        OBJECT_UIDS,
        RESOURCES,
        NAMESPACES,
    ),
    st.builds(patched, NAMES, resource=RESOURCES, namespace=NAMESPACES),
    st.builds(rebased, NAMES, resource=RESOURCES, namespace=NAMESPACES),
    st.builds(disowned, NAMES, resource=RESOURCES, namespace=NAMESPACES),
)
STEPS = st.integers(-1, 3)
"""The difference between a write's version and the server's last version."""


def uid_of(resource: AnyResource, namespace: str, name: str, uid: str) -> str:
    return f"{resource.plural}/{namespace}/{name}/{uid}"


@st.composite
def outcomes(draw: st.DrawFn, version: int) -> Outcome:
    write = draw(WRITES)
    number = str(version + draw(STEPS))
    match draw(st.sampled_from(["done", "done", "unknown", "vanished", "refused", "skipped"])), write:
        case "unknown", _:
            return Unknown(write, LOST)
        case "vanished", Delete() | Patch() | ThreeWayMerge() | RemoveOwnerReference():
            return Missing(write)
        case "vanished", Create():
            return AlreadyThere(write, number)
        case "refused", _:
            return Rejected(write, NO)
        case "skipped", _:
            return Skipped(write)
        case _:
            return Done(write, draw(st.sampled_from([number, number, f"v{number}", ""])))


class ExpectationsMachine(RuleBasedStateMachine):
    """The model stores a condition for each expectation.

    If a check finds the condition true, the model removes the expectation.
    """

    @initialize()
    def start(self) -> None:
        self.setup = ExpectationsSetup()
        self.version = 10
        self.model: dict[ObjectKey, tuple[str, float, list[Item]]] = {}
        self.given_up = 0

    # Changes of the cache

    @rule(name=NAMES, namespace=NAMESPACES, uid=OBJECT_UIDS, owner_uid=UIDS, deleting=st.booleans())
    def show(self, name: str, namespace: str, uid: str, owner_uid: str, deleting: bool) -> None:
        self.version += 1
        fields = {"namespace": namespace, "owner_uid": owner_uid, "deleting": deleting}
        for resource, prefix in ((VMIS, ""), (OPAQUE, "v")):
            shown = an_object(
                name, version=f"{prefix}{self.version}", uid=uid_of(resource, namespace, name, uid), **fields
            )
            self.store_of(resource).apply(shown, scope=namespace if resource is VMIS else "")

    @rule(name=NAMES, namespace=NAMESPACES)
    def show_gone(self, name: str, namespace: str) -> None:
        self.version += 1
        self.setup.store.remove(an_object(name, namespace=namespace, version=str(self.version)), scope=namespace)
        self.setup.opaque.remove(an_object(name, namespace=namespace, version=f"v{self.version}"))

    @rule(namespace=NAMESPACES)
    def bookmark(self, namespace: str) -> None:
        self.version += 1
        self.setup.store.advance(str(self.version), scope=namespace)

    @rule(seconds=st.sampled_from([1.0, 100.0, 150.0, 299.0]))
    def wait(self, seconds: float) -> None:
        self.setup.now += seconds

    # Writes

    @rule(data=st.data(), key=KEYS, uid=UIDS)
    def record(self, data: st.DataObject, key: ObjectKey, uid: str) -> None:
        written = data.draw(st.lists(outcomes(self.version), max_size=4))
        self.setup.expectations.record(key, uid, written)
        held_uid, _, items = self.model.get(key, ("", 0.0, []))
        items = [*(items if held_uid == uid else []), *(item for one in written for item in self.items_of(one, uid))]
        if items:
            self.model[key] = (uid, self.setup.now, items)

    @rule(key=KEYS)
    def forget(self, key: ObjectKey) -> None:
        self.setup.expectations.forget(key)
        self.model.pop(key, None)

    # Checks

    @rule(key=KEYS, uid=UIDS)
    def ask_whether_settled(self, key: ObjectKey, uid: str) -> None:
        self.look(key, uid)
        held_uid, since, items = self.model.get(key, ("", 0.0, []))
        ours = items if held_uid == uid else []
        overdue = self.setup.now - since >= GIVE_UP_AFTER_S
        if not ours or overdue:
            self.model.pop(key, None)
        self.given_up += bool(ours) and overdue
        assert self.setup.expectations.settled(key, uid) is (not ours or overdue)
        assert self.setup.given_up == self.given_up

    @rule(data=st.data(), key=KEYS, uid=UIDS)
    def ask_for_doubts_and_resolve_one(self, data: st.DataObject, key: ObjectKey, uid: str) -> None:
        held_uid, since, items = self.model.get(key, ("", 0.0, []))
        overdue = self.setup.now - since >= GIVE_UP_AFTER_S
        if not overdue:
            self.look(key, uid)
        unresolved = [item.doubt for item in items if item.doubt is not None]
        ours = unresolved if held_uid == uid and not overdue else []
        assert list(self.setup.expectations.unresolved(key, uid)) == ours
        if ours:
            write = data.draw(st.sampled_from(ours))
            turned_out = data.draw(st.none() | st.just(Done(write, str(self.version + 1))))
            self.setup.expectations.resolve(key, write, turned_out)
            items[:] = [item for item in items if item.doubt is not write]
            items += self.items_of(turned_out, uid) if turned_out is not None else ()

    @invariant()
    def the_age_is_that_of_the_oldest(self) -> None:
        ages = [self.setup.now - since for _, since, _ in self.model.values()]
        assert self.setup.expectations.oldest_s() == max(ages, default=0.0)

    # The model

    def look(self, key: ObjectKey, uid: str) -> None:
        """Remove the expectations that the stores confirm."""
        held_uid, _, items = self.model.get(key, ("", 0.0, []))
        if held_uid == uid:
            items[:] = [item for item in items if not item.is_over()]

    def items_of(self, outcome: Outcome, uid: str) -> Iterable[Item]:
        write: Any = outcome.action
        store = self.store_of(write.resource)
        match outcome:
            case _ if isinstance(write, RemoveOwnerReference):
                return
            case Unknown():
                yield Item(lambda: store is not None and self.is_proved(store, write, uid), write)
            case Done(action=Delete()) | Missing(action=Delete()):
                yield Item(lambda: store is None or not self.is_shown(store, write))
            case Done(version=version) | AlreadyThere(version=version) if version.isdigit():
                scope, counts = write.key.namespace, write.resource is VMIS
                yield Item(lambda: not counts or int(self.setup.store.version(scope)) >= int(version))

    def store_of(self, resource: AnyResource) -> Any:
        return {VMIS: self.setup.store, OPAQUE: self.setup.opaque}.get(resource)

    @staticmethod
    def is_shown(store: Store[Any], write: Delete) -> bool:
        held = store.get(write.key)
        return held is not None and held.metadata.uid == write.uid and held.metadata.deletion_timestamp is None

    def is_proved(self, store: Store[Any], write: Write, uid: str) -> bool:
        held = store.get(write.key)
        match write:
            case Delete():
                return not self.is_shown(store, write)
            case Create():
                return held is not None and held.metadata.owner_references[0].uid == uid
            case _:
                return False


TestExpectationsMachine = ExpectationsMachine.TestCase
TestExpectationsMachine.settings = settings(max_examples=25, stateful_step_count=40)
