"""Annotations `vmherd.dev/...` that are unknown, misplaced, or have a value that is not valid (P23).

A wrong annotation never stops the controller. The controller treats most of them as absent, and reports all of them: in
an Event, in the status, and in `kubectl vmherd why`.
"""

import difflib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from controller.apimachinery.field_error import quoted
from controller.kubevirt.annotations import MEMBER_MARKS, PREFIX
from controller.kubevirt.problems import one_line
from controller.kubevirt.vmi_types import VMITemplate
from controller.replicas.catalogue import BY_NAME, HIGHEST, REST, Place, Value, own_annotations, rank_of_unknown
from controller.replicas.notes import MAX_NOTICES
from controller.runtime.actions import Notice, Plan
from controller.runtime.members.groups import Group
from informers.meta import ObjectMeta, annotations_of

MAX_HINTS: Final = 3
_CLOSE: Final = 0.7
_LONGEST: Final = 63
"""The number of characters of a name that are compared. The API server accepts no longer name."""


class Wrong(Struct, frozen=True):
    """A wrong annotation. `where` names the VMs or VMIs that have it, or is "" for the set or pool itself. `rank`
    sorts them, the worst first. `unknown` is the name of an unknown annotation, or "". `hint` is the end of the
    text, with a similar name.
    """

    message: str
    where: str = ""
    rank: tuple[int, bool, str] = (0, False, "")
    unknown: str = ""
    hint: str = ""

    @property
    def text(self) -> str:
        text = f"{self.message}{self.hint}"
        return f"{self.where}: {text}" if self.where else text


def setting(meta: ObjectMeta, name: str) -> str | None:
    """Return the value of an annotation, or None if the annotation is absent or its value is not valid."""
    text = annotations_of(meta).get(name)
    return text if text is not None and is_valid(text, BY_NAME[name].value) else None


def is_valid(text: str, value: Value) -> bool:
    if not re.fullmatch(value.pattern, text, re.ASCII):
        return False
    if value.parse is not None:
        return value.parse(text) is not None
    return value.low is None or value.low <= int(text) <= HIGHEST


def wrong_on(meta: ObjectMeta, place: Place) -> tuple[Wrong, ...]:
    """Return the wrong annotations of the object, the most harmful first. A wrong value may stop the rollout."""
    if not meta.annotations:
        return ()
    found = [_wrong(name, text, place) for name, text in own_annotations(meta).items()]
    return tuple(sorted(filter(None, found), key=lambda each: each.rank))


def message_of(name: str, text: str, place: Place) -> str:
    """Return what is wrong with this annotation of an object, or ""."""
    wrong = _wrong(name, text, place)
    return wrong.message if wrong is not None else ""


def _wrong(name: str, text: str, place: Place) -> Wrong | None:
    known = BY_NAME.get(name)
    if name == REST:
        return Wrong(f"{text} more unknown annotations have no effect", rank=(5, False, name))
    if known is None:
        message = f"annotation {name} is unknown, so it has no effect"
        return Wrong(message, rank=(4, *rank_of_unknown(name)), unknown=name)
    if place not in known.on:
        message = f"annotation {name} has no effect on {place}: it belongs on {' and '.join(known.on)}"
        return Wrong(message, rank=(3, False, name))
    if is_valid(text, known.value):
        return None
    must = f"it must be {known.value.form}, so {known.otherwise}"
    return Wrong(one_line(f"annotation {name} is {quoted(text)}: {must}"), rank=(known.harm, False, name))


def with_hints(found: Iterable[Wrong]) -> tuple[Wrong, ...]:
    """Return the wrong annotations with a similar name for the first unknown ones. A comparison of names is slow."""
    listed, left = list(found), MAX_HINTS
    for index, wrong in enumerate(listed):
        if wrong.unknown and left:
            left -= 1
            listed[index] = replace(wrong, hint=_hint(wrong.unknown))
    return tuple(listed)


@lru_cache(maxsize=4096)
def _hint(name: str) -> str:
    names = [each.removeprefix(PREFIX) for each in BY_NAME]
    close = difflib.get_close_matches(name.removeprefix(PREFIX)[:_LONGEST], names, n=1, cutoff=_CLOSE)
    return f"; did you mean {PREFIX}{close[0]}?" if close else ""


def all_wrong(
    owner: ObjectMeta, place: Place, members: Iterable[tuple[str, Group[Any], tuple[Wrong, ...]]]
) -> tuple[Wrong, ...]:
    """Return the wrong annotations of a set or pool, and then those of its members, by name. Each entry of `members` is
    a group, with "VM" or "VMI", and what is wrong on each of its objects. Only such groups are read.
    """
    found: defaultdict[tuple[str, Wrong], list[Group[Any]]] = defaultdict(list)
    for noun, group, wrongs in members:
        for wrong in wrongs:
            found[noun, wrong].append(group)
    of_members = []
    for (noun, wrong), groups in found.items():
        first = min(each.metadata.name for group in groups for each in group)
        more = sum(map(len, groups)) - 1
        of_members.append((first, wrong.rank, noun, f"{noun} {first}{f' and {more} more' if more else ''}", wrong))
    of_members.sort(key=lambda each: each[:3])
    return with_hints((*wrong_on(owner, place), *(replace(wrong, where=where) for *_, where, wrong in of_members)))


def wrong_in_template(template: VMITemplate | None) -> Iterator[Wrong]:
    """Yield the annotations of the template that no new member gets, because each is about one member."""
    meta = template.metadata if template is not None else None
    for name in sorted(MEMBER_MARKS & ((meta.annotations if meta is not None else None) or {}).keys()):
        yield Wrong(f"annotation {name} has no effect in the template: it is about one VM", rank=(3, False, name))


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
    return f"{found[0].text} ({others_wrong(len(found) - 1)})"


def others_wrong(number: int) -> str:
    return f"and {number} more wrong annotation{'s' if number > 1 else ''}"
