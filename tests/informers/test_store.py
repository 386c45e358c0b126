from collections.abc import Iterable
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from informers.meta import ObjectKey
from informers.store import Added, Change, Removed, Store, Updated
from informers.watch.effects import Collect, Commit
from informers.watch.parser import PageRead
from informers.watch.watch_state import Listing, Waiting, Watching, listing
from tests.fakes import stores
from tests.informers.subjects import COLOR, ConfigMap, by_color, config_map, key


def make_store(*objects: ConfigMap, version: str = "1") -> Store[ConfigMap]:
    store = Store(indexes={COLOR: by_color})
    stores.replace(store, objects, version)
    return store


A5, A6, RED7 = config_map("a", 5), config_map("a", 6), config_map("a", 7, color="red")
ONE, TWO = config_map("a", 5, uid="one"), config_map("a", 7, uid="two")
ZZ, AA = config_map("a", "zz"), config_map("a", "aa")


@pytest.mark.parametrize(
    ("cached", "new", "changes"),
    [
        pytest.param((), A5, (Added(A5),), id="an unknown object"),
        pytest.param((A5,), RED7, (Updated(A5, RED7),), id="a newer version"),
        pytest.param((A5,), A6, (Updated(A5, A6, only_version=True),), id="nothing but a newer version"),
        pytest.param((A6,), config_map("a", 6, color="blue"), (), id="the same version"),
        pytest.param((A6,), config_map("a", 5, color="blue"), (), id="an older version"),
        pytest.param((config_map("a", 10),), config_map("a", 9), (), id="versions are numbers"),
        pytest.param((ONE,), TWO, (Removed(ONE), Added(TWO)), id="a new UID"),
        pytest.param((ZZ,), ZZ, (), id="the same version that is not a number"),
        pytest.param((ZZ,), AA, (Updated(ZZ, AA, only_version=True),), id="another version that is not a number"),
    ],
)
def test_an_event_changes_the_cache_only_if_it_is_news(
    cached: tuple[ConfigMap, ...], new: ConfigMap, changes: tuple[Change[ConfigMap], ...]
):
    store = make_store(*cached)
    assert store.apply(new) == changes
    assert store.get(key("a")) is (new if changes else cached[0])
    assert store.version() == (new.metadata.resource_version if changes else "1")


@pytest.mark.parametrize(
    ("cached", "deleted", "changes"),
    [
        pytest.param(ONE, config_map("a", 8, uid="two"), (Removed(ONE),), id="another UID"),
        pytest.param(TWO, config_map("a", 4, uid="one"), (), id="older than the object"),
    ],
)
def test_the_deletion_of_another_object_of_the_name_removes_only_an_older_object(
    cached: ConfigMap, deleted: ConfigMap, changes: tuple[Change[ConfigMap], ...]
):
    store = make_store(cached)
    assert store.remove(deleted.metadata, deleted) == changes
    assert store.get(key("a")) is (None if changes else cached)


RED5, A4 = config_map("a", 5, color="red"), config_map("a", 4)


@pytest.mark.parametrize(
    ("cached", "listed", "changes", "rewinds"),
    [
        pytest.param(A5, config_map("a", 5), (), 0, id="unchanged"),
        pytest.param(A5, A4, (Updated(A5, A4, only_version=True),), 1, id="an older version proves a restore"),
        pytest.param(A5, RED5, (Updated(A5, RED5),), 0, id="other contents with the same version"),
        pytest.param(ONE, TWO, (Removed(ONE), Added(TWO)), 0, id="a new UID"),
    ],
)
def test_an_object_of_a_list_replaces_the_cached_object(
    cached: ConfigMap, listed: ConfigMap, changes: tuple[Change[ConfigMap], ...], rewinds: int
):
    store = make_store(cached)
    assert stores.replace(store, [listed], "9") == changes
    assert store.get(key("a")) is (listed if changes else cached)
    assert store.by_index(COLOR, "red") == ((listed,) if listed is RED5 else ())
    assert store.rewinds == rewinds


def test_a_long_list_is_compared_in_slices():
    store = make_store(*(config_map(f"a{n}", n + 1) for n in range(10)))
    incoming = store.begin_replace()
    for n in range(5, 15):
        incoming.put(config_map(f"a{n}", n + 1))
    store.commit(incoming, "20")
    assert [len(changes) for changes in incoming.changes(at_once=4)] == [4, 1, 0, 0, 3, 2]
    assert len(store) == 10


@pytest.mark.parametrize(("uid", "left"), [("one", 1), ("two", 0)])
def test_an_undecodable_object_of_a_list_keeps_its_cached_state_unless_its_uid_is_new(uid: str, left: int):
    held = config_map("a", 5, uid="one", color="red")
    store = make_store(held)
    incoming = store.begin_replace()
    incoming.keep(config_map("a", 8, uid=uid).metadata)
    incoming.keep(config_map("never-seen", 7).metadata)
    store.commit(incoming, "9")
    changes = [change for changes in incoming.changes(at_once=10) for change in changes]
    assert changes == [Removed(held)] * (1 - left)
    assert store.by_index(COLOR, "red") == (held,) * left
    assert len(store) == left


def test_the_result_of_a_lookup_is_cached_until_an_object_changes():
    store = make_store(*(config_map(f"a{n}", n, color="red") for n in range(5)))
    first = store.by_index(COLOR, "red")
    store.apply(config_map("other", 50, color="blue"))
    assert store.by_index(COLOR, "red") is first
    store.apply(config_map("a0", 51, color="red"))
    assert store.by_index(COLOR, "red") is not first


def test_each_namespace_has_its_own_version_and_objects():
    store: Store[ConfigMap] = Store(indexes={COLOR: by_color}, scopes=("one", "two"))
    stores.replace(store, [config_map("a", 3, namespace="one", color="red")], "5", scope="one")
    stores.replace(store, [config_map("a", 4, namespace="two", color="red")], "8", scope="two")
    stores.replace(store, [], "9", scope="one")
    assert store.get(key("a", "one")) is None
    assert store.get(key("a", "two")) is not None
    assert store.get(key("a", "elsewhere")) is None
    assert [store.version("one"), store.version("two"), store.version("elsewhere")] == ["9", "8", ""]
    assert len(store.by_index(COLOR, "red")) == len(store.values()) == len(store) == 1


Objects: TypeAlias = dict[ObjectKey, ConfigMap]


def receive(held: Objects, changes: Iterable[Change[ConfigMap]], deleted: ConfigMap | None = None) -> None:
    """Apply the changes to `held` as a handler does.

    Check that each change starts from the state after the previous changes. A removed object is as it was held, or as
    the event of its deletion has it.
    """
    for change in changes:
        match change:
            case Added(new=new):
                assert new.metadata.key not in held
                held[new.metadata.key] = new
            case Updated(old=old, new=new):
                assert held[new.metadata.key] is old
                assert old.metadata.uid == new.metadata.uid
                held[new.metadata.key] = new
            case Removed(last_known=last):
                gone = held.pop(last.metadata.key)
                assert gone.metadata.uid == last.metadata.uid
                assert last in (gone, deleted)


NAMES = st.sampled_from("abcd")
COLORS = st.sampled_from([None, "red", "blue", "red,blue,red"])


class StoreAgainstADictionary(RuleBasedStateMachine):
    """After any writes in any order, the store and its indexes have the same contents as a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.store: Store[ConfigMap] = Store(indexes={COLOR: by_color})
        self.model: Objects = {}
        self.received: Objects = {}
        self.clock = 100

    def make(self, name: str, age: int, color: str | None, uid: str) -> ConfigMap:
        return config_map(name, self.clock - age, uid=f"{name}{uid}", color=color)

    @rule(name=NAMES, age=st.integers(0, 3), color=COLORS, uid=st.sampled_from("xy"))
    def apply(self, name: str, age: int, color: str | None, uid: str) -> None:
        self.clock += 1
        obj = self.make(name, age, color, uid)
        held = self.model.get(obj.metadata.key)
        if held is None or int(obj.metadata.resource_version) > int(held.metadata.resource_version):
            self.model[obj.metadata.key] = obj
        receive(self.received, self.store.apply(obj))

    @rule(name=NAMES, age=st.integers(0, 3))
    def remove(self, name: str, age: int) -> None:
        self.clock += 1
        obj = self.make(name, age, None, "x")
        held = self.model.get(obj.metadata.key)
        if held is not None and int(obj.metadata.resource_version) >= int(held.metadata.resource_version):
            del self.model[obj.metadata.key]
        receive(self.received, self.store.remove(obj.metadata, obj), deleted=obj)

    @rule(listed=st.dictionaries(NAMES, st.tuples(COLORS, st.sampled_from("xy"))), kept=st.sets(NAMES))
    def replace(self, listed: dict[str, tuple[str | None, str]], kept: set[str]) -> None:
        self.clock += 1
        made = {key(name): self.make(name, 0, color, uid) for name, (color, uid) in listed.items()}
        self.model = {each: self.model.get(each, obj) if each.name in kept else obj for each, obj in made.items()}
        incoming = self.store.begin_replace()
        for obj in self.model.values():
            incoming.put(obj)
        self.store.commit(incoming, str(self.clock))
        for changes in incoming.changes(at_once=2):
            receive(self.received, changes)

    @invariant()
    def the_store_has_the_contents_of_the_dictionary(self) -> None:
        assert {obj.metadata.key: obj for obj in self.store.values()} == self.model == self.received
        assert len(self.store) == len(self.model)

    @invariant()
    def the_indexes_match_the_objects(self) -> None:
        for color in ("red", "blue"):
            expected = {obj.metadata.key for obj in self.model.values() if color in by_color(obj)}
            found = self.store.by_index(COLOR, color)
            assert {obj.metadata.key for obj in found} == expected
            assert len(found) == len(expected)
            assert all(self.model[obj.metadata.key] is obj for obj in found)


TestStoreAgainstADictionary = StoreAgainstADictionary.TestCase
TestStoreAgainstADictionary.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


# After a restore of etcd, a list makes the cache equal to the server. The versions of the restored server may be older
# than in the cache, may be used again, or may be much newer. Writes after the restore may have the same versions as
# writes that the restore has undone.


WRITES = st.lists(st.tuples(NAMES, st.booleans()), max_size=8)
MOST_LISTS = 10


class Server:
    """A server with one version for all objects. Each write has a new color, so that contents can be compared."""

    def __init__(self) -> None:
        self.version = 10
        self.objects: Objects = {}
        self._colors = 0
        self._uids = 0

    def write(self, writes: list[tuple[str, bool]]) -> None:
        for name, deletes in writes:
            self.version += 1
            old = self.objects.pop(key(name), None)
            if deletes:
                continue
            self._colors += 1
            self._uids += old is None
            uid = old.metadata.uid if old is not None else f"uid-{self._uids}"
            self.objects[key(name)] = config_map(name, self.version, uid=uid, color=f"{self._colors}")

    def restore(self, version: int, objects: Objects) -> None:
        self.version, self.objects = version, dict(objects)


class Cache:
    """A store that receives only lists from a server, and no events. The field `told` contains the objects that were
    reported to the handlers.
    """

    def __init__(self) -> None:
        self.store: Store[ConfigMap] = Store()
        self.told: Objects = {}

    def list(self, server: Server) -> None:
        """List again and again, as the reflector does, until the store has accepted a list."""
        state = Listing()
        for _ in range(MOST_LISTS):
            page = PageRead(tuple(server.objects.values()), str(server.version))
            next_state, effects = listing(state, page, cached=self.store.version())
            replacement = self.store.begin_replace()
            for effect in effects:
                match effect:
                    case Collect(objects=objects):
                        for obj in objects:
                            replacement.put(obj)
                    case Commit(version=version, rewound=rewound):
                        self.store.commit(replacement, version, rewound=rewound)
                        for changes in replacement.changes(at_once=2):
                            receive(self.told, changes)
            match next_state:
                case Waiting(then=Listing() as state):
                    pass
                case Watching(version=version):
                    assert version == str(server.version)
                    return
        raise AssertionError("no list was used")

    @property
    def objects(self) -> Objects:
        return {obj.metadata.key: obj for obj in self.store.values()}


@given(before=WRITES, lost=WRITES, after=WRITES, bump=st.sampled_from([0, 0, 1, 3, 1000]))
def test_after_a_restore_and_a_list_the_cache_and_the_handlers_have_the_objects_of_the_server(
    before: list[tuple[str, bool]], lost: list[tuple[str, bool]], after: list[tuple[str, bool]], bump: int
) -> None:
    server, cache = Server(), Cache()
    server.write(before)
    backup = server.version, dict(server.objects)
    server.write(lost)
    cache.list(server)
    assert cache.objects == cache.told == server.objects
    server.restore(backup[0] + bump, backup[1])
    server.write(after)
    cache.list(server)
    assert cache.objects == cache.told == server.objects


@given(writes=WRITES, more=WRITES)
def test_without_a_restore_no_list_counts_as_one(writes: list[tuple[str, bool]], more: list[tuple[str, bool]]) -> None:
    server, cache = Server(), Cache()
    server.write(writes)
    cache.list(server)
    server.write(more)
    cache.list(server)
    assert (cache.objects, cache.store.rewinds) == (server.objects, 0)
