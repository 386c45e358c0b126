"""The annotation `vmherd.dev/history` of a set or pool: what happened to it last (R12, P18).

The facts are the Events of the object, without those about each created or updated VM, and what its status tells: the
begin and the end of a rollout, and a change of `spec.replicas`. An Event expires after an hour, and a fact stays. No
decision reads the annotation.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from controller.kubevirt.annotations import HISTORY
from informers.meta import ObjectMeta, annotations_of

MOST_FACTS: Final = 20
MOST_BYTES: Final = 4096
LONGEST_TEXT: Final = 200
LATEST: Final = datetime.max.replace(tzinfo=UTC)

BURST: Final = timedelta(minutes=10)
"""A fact that happens again within this time is counted, so one update of many VMs does not fill the list."""

ABOUT_EACH_VM: Final = frozenset(f"Successful{verb}" for verb in ("Create", "Update"))
"""The reasons of the Events about each single VM. The fact about the change that causes them tells enough."""


class Fact(Struct, frozen=True, omit_defaults=True):
    """`reason` is that of the Event. A fact that happened several `times` has the text and the time of the `last`."""

    at: datetime
    reason: str
    text: str
    times: int = 1
    last: datetime | None = None

    @property
    def until(self) -> datetime:
        return self.last or self.at


def fact(at: datetime, reason: str, text: str, times: int = 1) -> Fact:
    return Fact(at.replace(microsecond=0), reason, text[:LONGEST_TEXT], times)


def read_history(meta: ObjectMeta) -> tuple[Fact, ...]:
    """Return the facts, the oldest first, or nothing if the value cannot be read."""
    text = annotations_of(meta).get(HISTORY, "")
    try:
        found = msgspec.json.decode(text, type=tuple[Fact, ...]) if 0 < len(text) <= MOST_BYTES else ()
    except (msgspec.DecodeError, RecursionError):
        return ()
    return found[:MOST_FACTS] if all(each.until.tzinfo for each in found) else ()


def joined(facts: tuple[Fact, ...], new: Iterable[Fact]) -> tuple[Fact, ...]:
    """Return the last facts. A new fact that the list has already is not added again."""
    for each in new:
        same = next((place for place, old in enumerate(facts) if _is_again(old, each)), None)
        if same is None:
            facts = (*facts, each)[-MOST_FACTS:]
        elif each.until > facts[same].until:
            times = facts[same].times + each.times
            again = replace(facts[same], text=each.text, times=times, last=each.until)
            facts = (*facts[:same], again, *facts[same + 1 :])
    return facts


def _is_again(old: Fact, new: Fact) -> bool:
    return old.reason == new.reason and new.at - old.until < BURST


def encode_history(facts: tuple[Fact, ...]) -> str:
    """Return the value of the annotation. If it would be too long, the oldest facts are left out."""
    while len(text := msgspec.json.encode(facts)) > MOST_BYTES:
        facts = facts[1:]
    return text.decode()


def facts_of_status(old: Any, new: Any, at: datetime) -> Iterator[Fact]:
    """Yield the begin and the end of a rollout, if the change of the status tells them."""
    # A kind without revisions has no rollouts.
    if not getattr(old, "update_revision", None) or not old.current_revision:
        return
    target = new.update_revision
    if target != old.update_revision:
        yield fact(at, "RolloutStarted", f"from {old.update_revision} to {target}")
    if new.current_revision == target != old.current_revision:
        yield fact(at, "RolledOut", f"no VM is older than {target}")


class _Fields(Struct, frozen=True):
    manager: str = ""
    time: datetime | None = None
    fields: Mapping[str, Any] = msgspec.field(default={}, name="fieldsV1")


class _Managed(Struct, frozen=True, rename="camel"):
    managed_fields: tuple[_Fields, ...] = ()


class _Written(Struct, frozen=True):
    metadata: _Managed = _Managed()


_read_managed = msgspec.json.Decoder(_Written).decode


def last_writer(answer: bytes, *fields: str) -> str:
    """Return the field manager that last wrote one of these fields of the spec, or "" if the object does not tell."""
    try:
        managed = _read_managed(answer).metadata.managed_fields
    except (msgspec.DecodeError, RecursionError):
        return ""
    wanted = {f"f:{each}" for each in fields}
    found = [each for each in managed if wanted & (each.fields.get("f:spec") or {}).keys()]
    # The server notes no time for a write of the subresource `scale`. The writer of another value is the only one left.
    return max(((each.time or LATEST, each.manager) for each in found), default=(LATEST, ""))[1]
