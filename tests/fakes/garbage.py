"""Kubernetes' garbage collector, for the objects of the fake API server."""

from informers.meta import ObjectKey
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.requests import AnyResource, Document
from tests.fakes.rules import FOREGROUND, ORPHAN, finalizers_of


def collect_garbage(server: FakeApiServer) -> None:
    """Run the garbage collector until nothing changes: orphaning, foreground deletion, objects without owners."""
    while _collect_once(server):
        pass


def references_to(dependent: Document, uid: str) -> list[Document]:
    return [each for each in dependent["metadata"].get("ownerReferences") or () if each["uid"] == uid]


def _collect_once(server: FakeApiServer) -> bool:
    every = list(server.every())
    alive = {held["metadata"]["uid"] for _, _, held in every}
    before = server.version
    for resource, key, held in every:
        is_deleting = "deletionTimestamp" in held["metadata"]
        if server.current(resource, key) is not held:
            continue  # changed in this turn: the next turn handles it
        if is_deleting and ORPHAN in finalizers_of(held):
            _orphan(server, resource, key, held)
        elif is_deleting and FOREGROUND in finalizers_of(held):
            _collect_in_the_foreground(server, resource, key, held)
        elif not is_deleting and _is_abandoned(held, alive):
            server.remove(resource, key)
    return server.version != before


def _is_abandoned(held: Document, alive: set[str]) -> bool:
    """True if the object has owner references and all of its owners are gone."""
    owners = held["metadata"].get("ownerReferences") or ()
    return bool(owners) and not any(owner["uid"] in alive for owner in owners)


def _orphan(server: FakeApiServer, resource: AnyResource, key: ObjectKey, held: Document) -> None:
    uid = held["metadata"]["uid"]
    for other, dependent, document in _dependents(server, uid):
        kept = [each for each in document["metadata"]["ownerReferences"] if each["uid"] != uid]
        server.change(other, dependent, {"metadata": {"ownerReferences": kept}})
    _finish(server, resource, key, ORPHAN)


def _collect_in_the_foreground(server: FakeApiServer, resource: AnyResource, key: ObjectKey, held: Document) -> None:
    uid = held["metadata"]["uid"]
    dependents = _dependents(server, uid)
    if not any(each.get("blockOwnerDeletion") for _, _, other in dependents for each in references_to(other, uid)):
        _finish(server, resource, key, FOREGROUND)
        return
    for other, dependent, document in dependents:
        if "deletionTimestamp" not in document["metadata"]:
            has_dependents = bool(_dependents(server, document["metadata"]["uid"]))
            server.remove(other, dependent, propagation="Foreground" if has_dependents else "Background")


def _dependents(server: FakeApiServer, uid: str) -> list[tuple[AnyResource, ObjectKey, Document]]:
    return [each for each in server.every() if references_to(each[2], uid)]


def _finish(server: FakeApiServer, resource: AnyResource, key: ObjectKey, finalizer: str) -> None:
    kept = [each for each in finalizers_of(server.document(resource, key)) if each != finalizer]
    server.change(resource, key, {"metadata": {"finalizers": kept}})
