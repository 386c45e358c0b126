"""A property: after a restore of etcd, a list makes the cache equal to the server.

The versions of the restored server may be older than in the cache, may be used again, or may be much newer. Writes
after the restore may have the same versions as writes that the restore has undone.
"""

from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from informers.store import Added, Removed, Replacement, Store, Updated
from informers.watch.effects import Collect, Commit
from informers.watch.parser import PageRead
from informers.watch.watch_state import Listing, Waiting, Watching, listing
from tests.informers.subjects import ConfigMap, config_map

Objects: TypeAlias = dict[str, ConfigMap]

WRITES = st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=8)
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
            old = self.objects.pop(name, None)
            if deletes:
                continue
            self._colors += 1
            self._uids += old is None
            uid = old.metadata.uid if old is not None else f"uid-{self._uids}"
            self.objects[name] = config_map(name, self.version, uid=uid, color=f"{self._colors}")

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
                        self.receive(replacement)
            match next_state:
                case Waiting(then=Listing() as state):
                    pass
                case Watching(version=version):
                    assert version == str(server.version)
                    return
        raise AssertionError("no list was used")

    def receive(self, replacement: Replacement[ConfigMap]) -> None:
        for changes in replacement.changes(at_once=2):
            for change in changes:
                match change:
                    case Added(new=new):
                        assert new.metadata.name not in self.told
                        self.told[new.metadata.name] = new
                    case Updated(old=old, new=new):
                        assert self.told[new.metadata.name] == old
                        assert old.metadata.uid == new.metadata.uid
                        self.told[new.metadata.name] = new
                    case Removed(last_known=last):
                        assert self.told.pop(last.metadata.name) == last

    @property
    def objects(self) -> Objects:
        return {obj.metadata.name: obj for obj in self.store.values()}


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
