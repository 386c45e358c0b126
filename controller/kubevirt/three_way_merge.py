"""From one template to the next, without losing what a VM has of its own (P12): a merge of three documents.

`current` is the object as the server has it; `old` and `new` are the same object as two templates would have it. What
the templates agree on stays as it is in `current`: firmware UUIDs, MAC addresses, hot-plugged disks, restored volumes,
a `runStrategy` that somebody set, foreign labels. What they differ in becomes what `new` says, also where somebody has
changed it meanwhile. So an object that is still as `old` has it becomes as `new` has it, to the last element.

Objects are merged field by field. Of an object that the template drops, what the template never said stays: a firmware
that it no longer mentions keeps the UUID that KubeVirt gave it. Named lists (disks, volumes, interfaces, networks,
dataVolumeTemplates ...) are merged element by element, in the order that the VM has, unless the template changed that
order; an element that the template drops goes whole, and one that somebody took away stays away. Any other list that
the template changed is replaced whole, as are the few objects whose fields mean something only together. Where KubeVirt
takes one of several fields (the source of a volume, the kind of a disk, `running` or `runStrategy`), a choice that the
template changed displaces any other: with two of them the VM would be refused.

Two spellings of one meaning are no difference (`normal_form`): neither between the templates, nor between what the VM
has and what it should have. So no field is sent, and no null, whose absence means the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from controller.kubevirt.normal_form import VM_TEMPLATE, Fields, GoType, Json, is_same, normal_form, strategy_of

POWER: Final = ("running", "runStrategy")
"""Two ways to say whether a VM is to run, of which KubeVirt takes one."""

_WHOLE: Final = frozenset({"instancetype", "preference", "source"})
"""Objects whose fields mean something only together. KubeVirt notes the revision of the instance type that it found
beside the name that it looked for, and goes by that revision for as long as it stands there.
"""


class _NamedList(Struct, frozen=True):
    """How the elements of a list are told apart, and which of their fields exclude each other."""

    name_of: Callable[[Fields], Json]
    is_choice: Callable[[str], bool] = lambda field: False


def three_way_merge(current: bytes, old: bytes, new: bytes) -> bytes | None:
    """The merge patch that brings `current` from `old` to `new`, tied to its resourceVersion; None where none is due.

    Only `metadata.labels`, `metadata.annotations` and `spec` are looked at.

    Raises msgspec.DecodeError or UnicodeDecodeError for what is no JSON object, and RecursionError for one that is
    nested too deeply.
    """
    held = _decode(current)
    before, past, wanted = _mutable(held), _mutable(_decode(old)), _mutable(_decode(new))
    after = _merge_fields(VM_TEMPLATE, before, past, wanted)
    specs = (_fields(each.get("spec")) for each in (after, before, past, wanted))
    after["spec"] = _with_power(*specs)
    patch = _difference(VM_TEMPLATE, before, after)
    if not patch:
        return None
    metadata = _fields(held.get("metadata"))
    tie = {"uid": metadata.get("uid"), "resourceVersion": metadata.get("resourceVersion")}
    patch["metadata"] = {**_fields(patch.get("metadata")), **tie}
    return msgspec.json.encode(patch)


def _decode(document: bytes) -> Fields:
    return _fields(_without_nulls(msgspec.json.decode(document, type=dict[str, object])))


def _without_nulls(value: Json) -> Json:
    """The value without fields that are null. In a list null has a place, and keeps it."""
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def _mutable(document: Fields) -> Fields:
    """The parts that a template has a say in. The API server does not tell no labels from an empty set of them."""
    metadata = _fields(document.get("metadata"))
    kept = {name: _fields(metadata.get(name)) for name in ("labels", "annotations")}
    return {"metadata": kept, "spec": _fields(document.get("spec"))}


def _merge(name: str, type_: GoType, current: Json, old: Json, new: Json) -> Json:
    """One value of the three documents; `name` is the field that holds it."""
    if is_same(old, new, type_):
        return current
    if name in _WHOLE:
        return new
    if isinstance(current, dict) and isinstance(new, dict):
        return _merge_fields(type_, current, _fields(old), new)
    if isinstance(current, dict) and isinstance(old, dict) and new is None:
        return _merge_fields(type_, current, old, {}) or None
    if name in _NAMED_LISTS:
        kind = _NAMED_LISTS[name]
        lists = [_by_name(value, kind) for value in (current, old, new)]
        named = [elements for elements in lists if elements is not None]
        if len(named) == len(lists):
            merged = _merge_elements(kind, type_.element, *named)
            return merged if merged or new is not None else None
    return new


def _merge_fields(type_: GoType, current: Fields, old: Fields, new: Fields) -> Fields:
    merged = dict(current)
    for name in dict.fromkeys((*old, *new)):
        value = _merge(name, type_.field(name), current.get(name), old.get(name), new.get(name))
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = value
    return merged


def _merge_elements(kind: _NamedList, type_: GoType, current: Fields, old: Fields, new: Fields) -> list[Json]:
    """The elements of a named list, each merged for itself."""
    merged: Fields = dict(current)
    for name in dict.fromkeys((*old, *new)):
        if name not in new:
            merged.pop(name, None)
        elif name not in current and name not in old:
            merged[name] = new[name]
        elif name in current and not is_same(old.get(name), new[name], type_):
            held, then, now = _fields(current[name]), _fields(old.get(name)), _fields(new[name])
            merged[name] = _with_choices(kind, type_, _merge_fields(type_, held, then, now), then, now)
    return [merged[name] for name in _in_order(merged, current, old, new)]


def _with_choices(kind: _NamedList, type_: GoType, merged: Fields, old: Fields, new: Fields) -> Fields:
    """The element without what a choice that the template changed displaces."""
    choices = [name for name in (*old, *new) if kind.is_choice(name)]
    if all(is_same(old.get(name), new.get(name), type_.field(name)) for name in choices):
        return merged
    return {name: value for name, value in merged.items() if name in new or not kind.is_choice(name)}


def _in_order(names: Iterable[str], current: Iterable[str], old: Fields, new: Fields) -> list[str]:
    """The names in the VM's order, or in the template's where that changed. Those that only the other one has come
    behind the one that they follow there.
    """
    is_reordered = [name for name in old if name in new] != [name for name in new if name in old]
    leading, other = (new, current) if is_reordered else (current, new)
    there = frozenset(names)
    order = [name for name in leading if name in there]
    place = 0
    for name in other:
        if name in there:
            if name not in order:
                order.insert(place, name)
            place = order.index(name) + 1
    return order


def _with_power(merged: Fields, current: Fields, old: Fields, new: Fields) -> Fields:
    """The VM's spec with one setting for whether it runs. The VM keeps its setting if the template's means the same as
    before, or if the template's old setting is unknown: no VM is started for that.
    """
    said, was, wanted = (strategy_of(spec) for spec in (current, old, new))
    is_theirs = said not in (None, was) and was is None
    source = new if was != wanted and not is_theirs else current
    others = {name: value for name, value in merged.items() if name not in POWER}
    return others | {name: source[name] for name in POWER if name in source}


def _difference(type_: GoType, before: Fields, after: Fields) -> Fields:
    """The merge patch (RFC 7386) from one to the other: null removes a field, a list is replaced whole."""
    patch: Fields = {}
    for name, value in after.items():
        held, inner_type = before.get(name), type_.field(name)
        if isinstance(held, dict) and isinstance(value, dict):
            if inner := _difference(inner_type, held, value):
                patch[name] = inner
        elif not is_same(held, value, inner_type):
            patch[name] = value
    gone = (name for name in before if name not in after)
    return patch | {name: None for name in gone if normal_form(before[name], type_.field(name)) is not None}


def _fields(value: Json) -> Fields:
    """An object's fields; none where it is no object."""
    return value if isinstance(value, dict) else {}


def _by_name(value: Json, kind: _NamedList) -> Fields | None:
    """The elements of a list by name; None where they have no names, or share one."""
    if value is None:
        return {}
    if not isinstance(value, list):
        return None
    named: Fields = {}
    for element in value:
        name = kind.name_of(_fields(element))
        if not isinstance(name, str) or name in named:
            return None
        named[name] = element
    return named


def _own_name(element: Fields) -> Json:
    return element.get("name")


def _metadata_name(element: Fields) -> Json:
    return _fields(element.get("metadata")).get("name")


def _is_source(field: str) -> bool:
    """Volumes and networks have a name, and beside it the one thing that they stand for."""
    return field != "name"


_DISK_KINDS: Final = frozenset({"disk", "lun", "cdrom", "floppy"})
_BINDINGS: Final = frozenset(
    {"binding", "bridge", "macvtap", "masquerade", "passt", "passtBinding", "slirp", "sriov", "vdpa"}
)

_NAMED_LISTS: Final[Mapping[str, _NamedList]] = {
    "disks": _NamedList(_own_name, _DISK_KINDS.__contains__),
    "volumes": _NamedList(_own_name, _is_source),
    "interfaces": _NamedList(_own_name, _BINDINGS.__contains__),
    "networks": _NamedList(_own_name, _is_source),
    "filesystems": _NamedList(_own_name),
    "gpus": _NamedList(_own_name),
    "hostDevices": _NamedList(_own_name),
    "dataVolumeTemplates": _NamedList(_metadata_name),
}
