"""Adds to the observations what the observer missed, from the answers to the writes."""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence

from msgspec.structs import replace

from tests.faults.judge.history import Observation, Request, Type, answered_uid, removes
from tests.faults.judge.states import uid_of, version_of


def complete(observations: Iterable[Observation], requests: Iterable[Request]) -> tuple[Observation, ...]:
    """Return the observations. If an answer to a write shows a state that the observer missed, add this state.

    The answer to a create request or a change contains the new state of the object.
    """
    found = {(each.kind, uid_of(each.object), each.revision): each for each in observations}
    removed = {(kind, uid): revision for (kind, uid, revision), each in found.items() if each.type == "DELETED"}
    requests = tuple(requests)
    for write in requests:
        answer = write.answer or {}
        if not write.kind or not write.revision or answer.get("kind") != write.kind:
            continue
        uid = uid_of(answer)
        is_after_removal = write.revision > removed.get((write.kind, uid), write.revision)
        if (write.kind, uid, write.revision) in found or is_after_removal:
            continue
        type_: Type = "ADDED" if write.verb == "create" else "MODIFIED"
        found[write.kind, uid, write.revision] = Observation(write.revision, write.kind, type_, answer, write.answered)
    known = [*found.values(), *_removals(found.values(), removed.keys(), requests)]
    return tuple(sorted(_placed(known), key=lambda each: each.revision))


def _removals(
    observations: Iterable[Observation], removed: Container[tuple[str, str]], requests: Iterable[Request]
) -> Iterator[Observation]:
    """Yield the removals of objects that the observer never saw: they were created and removed between two lists."""
    last = {(each.kind, uid_of(each.object)): each for each in sorted(observations, key=lambda each: each.revision)}
    for write in requests:
        place = write.kind, answered_uid(write)
        if removes(write) and place in last and place not in removed:
            yield replace(last.pop(place), type="DELETED", time=write.answered)


def _placed(observations: Sequence[Observation]) -> Iterator[Observation]:
    """Yield the observations. Move each removal that only a list showed to the revision of the object's last state.

    The object was removed between its last state and the list. Another object can have its name long before the list.
    """
    last: dict[tuple[str, str], int] = defaultdict(int)
    for each in observations:
        key = each.kind, uid_of(each.object)
        if each.type != "DELETED":
            last[key] = max(last[key], each.revision)
    for each in sorted(observations, key=lambda each: each.type == "DELETED"):
        known = last[each.kind, uid_of(each.object)]
        is_late = each.type == "DELETED" and version_of(each.object) < each.revision
        yield replace(each, revision=known) if is_late and known else each
