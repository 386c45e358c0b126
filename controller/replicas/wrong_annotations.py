"""Annotations `vmherd.dev/...` that are unknown, misplaced, or have a value that is not valid (P23).

A wrong annotation never stops the controller. The controller treats most of them as absent, and reports all of them: in
an Event, in the status, and in `kubectl vmherd why`.
"""

import difflib
import re
from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.field_error import quoted
from controller.kubevirt.annotations import PREFIX
from controller.kubevirt.problems import one_line
from controller.replicas.catalogue import BY_NAME, HIGHEST, Place, Value
from controller.runtime.actions import Notice, Plan
from controller.runtime.members.groups import Group
from informers.meta import ObjectMeta, annotations_of

MAX_NOTICES: Final = 10
_CLOSE: Final = 0.7
_SHORT: Final = 64


class Wrong(Struct, frozen=True):
    """A wrong annotation. `where` names the VMs or VMIs that have it, or is "" for the set or pool itself."""

    message: str
    where: str = ""

    @property
    def text(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


def setting(meta: ObjectMeta, name: str) -> str | None:
    """Return the value of an annotation, or None if the annotation is absent or its value is not valid."""
    text = annotations_of(meta).get(name)
    return text if text is not None and is_valid(text, BY_NAME[name].value) else None


def is_valid(text: str, value: Value) -> bool:
    if not re.fullmatch(value.pattern, text, re.ASCII):
        return False
    return value.low is None or value.low <= int(text) <= HIGHEST


def wrong_on(meta: ObjectMeta, place: Place) -> tuple[str, ...]:
    """Return one message for each wrong annotation of the object, in the order of their names."""
    annotations = meta.annotations
    if not annotations:
        return ()
    messages = [message_of(name, annotations[name], place) for name in sorted(annotations) if name.startswith(PREFIX)]
    return tuple(filter(None, messages))


def message_of(name: str, text: str, place: Place) -> str:
    """Return what is wrong with this annotation of an object, or ""."""
    # The VMs of a large pool often have the same annotations. A long value is not kept in memory.
    return _remembered(name, text, place) if len(text) <= _SHORT else _message_of(name, text, place)


def _message_of(name: str, text: str, place: Place) -> str:
    known = BY_NAME.get(name)
    if known is None:
        return _unknown(name)
    if place not in known.on:
        return f"annotation {name} has no effect on {place}: it belongs on {' and '.join(known.on)}"
    if is_valid(text, known.value):
        return ""
    return one_line(f"annotation {name} is {quoted(text)}: it must be {known.value.form}, so {known.otherwise}")


_remembered = lru_cache(maxsize=4096)(_message_of)


def _unknown(name: str) -> str:
    names = [each.removeprefix(PREFIX) for each in BY_NAME]
    close = difflib.get_close_matches(name.removeprefix(PREFIX), names, n=1, cutoff=_CLOSE)
    hint = f"; did you mean {PREFIX}{close[0]}?" if close else ""
    return f"annotation {name} is unknown, so it has no effect{hint}"


def all_wrong(
    owner: ObjectMeta, place: Place, members: Iterable[tuple[str, Group[Any], tuple[str, ...]]]
) -> tuple[Wrong, ...]:
    """Return the wrong annotations of a set or pool, and after them those of its members, in the order of their names.

    Each entry of `members` is a group of VMs with "VM" or "VMI", and the messages about each of these objects. Only the
    groups with messages are read.
    """
    found: defaultdict[tuple[str, str], list[Group[Any]]] = defaultdict(list)
    for noun, group, messages in members:
        for message in messages:
            found[noun, message].append(group)
    of_members = []
    for (noun, message), groups in found.items():
        first = min(each.metadata.name for group in groups for each in group)
        more = sum(map(len, groups)) - 1
        of_members.append((first, Wrong(message, f"{noun} {first}{f' and {more} more' if more else ''}")))
    of_members.sort(key=lambda each: (each[0], each[1].text))
    return (*map(Wrong, wrong_on(owner, place)), *(wrong for _, wrong in of_members))


def with_wrong_annotations(plan: Plan, found: tuple[Wrong, ...]) -> Plan:
    """Return the plan with an Event for each wrong annotation. Further VMs with the same value get no further one."""
    if not found:
        return plan
    notices = [Notice(reason="InvalidAnnotation", message=each.text, once=each.message) for each in found]
    return replace(plan, notices=(*plan.notices, *notices[:MAX_NOTICES]))


def problem_of(found: tuple[Wrong, ...]) -> str:
    """Return one line for the status, or ""."""
    if len(found) < 2:
        return found[0].text if found else ""
    return f"{found[0].text} (and {len(found) - 1} more wrong annotations)"
