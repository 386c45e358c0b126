"""Changes of single fields of an object, as a JSON patch for the API server or applied to a local copy.

A JSON patch can only set a field if the parent of the field exists. So the patch is made for one document, and sets the
missing parents too. The patch tests the UID, so it cannot change a new object with the same name.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

Document: TypeAlias = Mapping[str, Any]


class Absent:
    """The value of a field that is removed or missing. In a message it is `<none>`, as in kubectl."""

    def __str__(self) -> str:
        return "<none>"


ABSENT: Final = Absent()


class Edit(Struct, frozen=True):
    """A field and its new value. The value ABSENT removes the field."""

    path: tuple[str, ...]
    value: object


def field(document: Document, path: Iterable[str]) -> Any:
    """Return the value of a field, or ABSENT if the field or one of its parents is missing or null."""
    value: Any = document
    for name in path:
        value = value.get(name, ABSENT) if isinstance(value, Mapping) else ABSENT
        if value is None:
            return ABSENT
    return value


def items(document: Document, path: Iterable[str]) -> list[Any]:
    """Return the elements of a list, or none if the field is no list."""
    found = field(document, path)
    return found if isinstance(found, list) else []


def edited(document: Document, edits: Iterable[Edit]) -> Document:
    for edit in edits:
        document = _with(document, edit.path, edit.value)
    return document


def json_patch(document: Document, edits: Iterable[Edit]) -> bytes:
    steps: list[dict[str, object]] = [
        {"op": "test", "path": "/metadata/uid", "value": field(document, ("metadata", "uid"))}
    ]
    for edit in edits:
        step = _step(document, edit)
        document = _with(document, edit.path, edit.value)
        steps += [step] if step else []
    return msgspec.json.encode(steps)


def _step(document: Document, edit: Edit) -> dict[str, object] | None:
    if edit.value is ABSENT:
        gone = field(document, edit.path) is ABSENT
        return None if gone else {"op": "remove", "path": pointer(edit.path)}
    parents = range(1, len(edit.path))
    missing = (depth for depth in parents if not isinstance(field(document, edit.path[:depth]), Mapping))
    depth = next(missing, len(edit.path))
    value = edit.value
    for name in reversed(edit.path[depth:]):
        value = {name: value}
    return {"op": "add", "path": pointer(edit.path[:depth]), "value": value}


def pointer(path: Iterable[str]) -> str:
    return "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in path)


def _with(document: Document, path: tuple[str, ...], value: object) -> Document:
    name, *rest = path
    if rest:
        child = document.get(name)
        if not isinstance(child, Mapping):
            if value is ABSENT:
                return document
            child = {}
        return {**document, name: _with(child, tuple(rest), value)}
    if value is ABSENT:
        return {key: each for key, each in document.items() if key != name}
    return {**document, name: value}
