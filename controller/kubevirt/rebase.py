"""From one template to the next, without losing what a VM has of its own (P12): a merge of three documents.

`current` is the object as the server has it; `old` and `new` are the same object as two templates would have it. What
the templates agree on stays as it is in `current`: firmware UUIDs, MAC addresses, hot-plugged disks, a `runStrategy`
that somebody set, foreign labels. What they differ in becomes what `new` says.

Lists of named things (disks, volumes, interfaces, networks, dataVolumeTemplates) are merged name by name, in the order
that the VM has. Any other list that the template changed is replaced whole. `null` counts as absent, as the API server
holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, TypeAlias

import msgspec


class _Absent(Enum):
    ABSENT = "absent"


ABSENT: Final = _Absent.ABSENT
Json: TypeAlias = object
Fields: TypeAlias = dict[str, Json]


def rebase(current: bytes, old: bytes, new: bytes) -> bytes | None:
    """The merge patch that brings `current` from `old` to `new`, tied to its resourceVersion; None where none is due.

    Only `metadata.labels`, `metadata.annotations` and `spec` are looked at. Raises msgspec.DecodeError.
    """
    held = _decode(current)
    metadata = held.get("metadata")
    fields = metadata if isinstance(metadata, dict) else {}
    before = _mutable(held)
    merged = _merge("", before, _mutable(_decode(old)), _mutable(_decode(new)))
    patch = _difference(before, merged if isinstance(merged, dict) else {})
    if not patch:
        return None
    changed = patch.setdefault("metadata", {})
    if isinstance(changed, dict):
        changed.update(uid=fields.get("uid"), resourceVersion=fields.get("resourceVersion"))
    return msgspec.json.encode(patch)


def _decode(document: bytes) -> Fields:
    return msgspec.json.decode(document, type=dict[str, object])


def _mutable(document: Fields) -> Fields:
    """The parts that a template has a say in."""
    metadata = document.get("metadata")
    given = metadata if isinstance(metadata, dict) else {}
    kept = {name: given[name] for name in ("labels", "annotations") if isinstance(given.get(name), dict)}
    spec = document.get("spec")
    return {"metadata": kept, "spec": spec if isinstance(spec, dict) else {}}


def _merge(name: str, current: Json, old: Json, new: Json) -> Json:
    """One value of the three documents; `name` is the field that holds it."""
    current, old, new = (ABSENT if value is None else value for value in (current, old, new))
    if old == new:
        return current
    if isinstance(current, dict) and isinstance(new, dict):
        return _merge_fields(current, old if isinstance(old, dict) else {}, new)
    name_of = _NAMED_LISTS.get(name)
    if name_of is not None and isinstance(new, list | _Absent):
        lists = [_by_name(value, name_of) for value in (current, old, new)]
        if (given := _all_given(lists)) is not None:
            merged = _merge_fields(*given)
            return list(merged.values()) if merged or new is not ABSENT else ABSENT
    return new


def _merge_fields(current: Fields, old: Fields, new: Fields) -> Fields:
    merged = dict(current)
    for name in dict.fromkeys((*old, *new)):
        value = _merge(name, current.get(name), old.get(name), new.get(name))
        if value is ABSENT:
            merged.pop(name, None)
        else:
            merged[name] = value
    return merged


def _difference(before: Fields, after: Fields) -> Fields:
    """The merge patch (RFC 7386) from one to the other: null takes a field away, a list is replaced whole."""
    patch: Fields = {}
    for name, value in after.items():
        held = before.get(name)
        if isinstance(held, dict) and isinstance(value, dict):
            if inner := _difference(held, value):
                patch[name] = inner
        elif held != value:
            patch[name] = value
    for name, value in before.items():
        if name not in after and value is not None:
            patch[name] = None
    return patch


def _by_name(value: Json, name_of: Callable[[Mapping[str, Json]], Json]) -> Fields | None:
    """The elements of a list by name; None where they have no names, or share one."""
    if value is ABSENT:
        return {}
    if not isinstance(value, list):
        return None
    named: Fields = {}
    for element in value:
        name = name_of(element) if isinstance(element, dict) else None
        if not isinstance(name, str) or name in named:
            return None
        named[name] = element
    return named


def _all_given(lists: list[Fields | None]) -> list[Fields] | None:
    given = [fields for fields in lists if fields is not None]
    return given if len(given) == len(lists) else None


def _own_name(element: Mapping[str, Json]) -> Json:
    return element.get("name")


def _metadata_name(element: Mapping[str, Json]) -> Json:
    metadata = element.get("metadata")
    return metadata.get("name") if isinstance(metadata, dict) else None


_NAMED_LISTS: Final[Mapping[str, Callable[[Mapping[str, Json]], Json]]] = {
    "disks": _own_name,
    "volumes": _own_name,
    "interfaces": _own_name,
    "networks": _own_name,
    "filesystems": _own_name,
    "dataVolumeTemplates": _metadata_name,
}
