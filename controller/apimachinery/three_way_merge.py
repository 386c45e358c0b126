"""A merge of three documents: what changed between two of them is carried over to the third.

`current` is the object as the server has it. `old` and `new` are the same object as two templates would have it. What
the templates agree on stays as it is in `current`. What they differ in becomes what `new` says in any case.
So an object that equals `old` becomes equal to `new`.

Objects are merged field by field. If the template drops an object, its fields that the template never named stay. Named
lists are merged element by element, in the order of `current`, or in the order of `new` if the template changed the
order. An element that the template drops goes whole, and one that somebody removed stays away. Any other list that the
template changed is replaced whole.

`MergeRules` says what the merge cannot know of a kind: which values mean the same, which lists are named, which fields
exclude each other. A field whose absence means the same is not sent, and neither is its null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol, TypeAlias

import msgspec
from msgspec import Struct

Json: TypeAlias = object
"""A JSON value; None if there is none."""

Fields: TypeAlias = dict[str, Json]


class FieldType(Protocol):
    """The type of a value, as far as the comparison needs it."""

    def field(self, name: str) -> FieldType: ...

    @property
    def element(self) -> FieldType: ...


class Untyped:
    """A type that is not known, and neither are its parts."""

    def field(self, name: str) -> FieldType:
        return self

    @property
    def element(self) -> FieldType:
        return self


class NamedList(Struct, frozen=True):
    """How the elements of a list are told apart, and which of their fields exclude each other.

    `name` is the path of the element's name. `is_choice` tells for a field whether it is one of several alternatives.
    """

    name: tuple[str, ...] = ("name",)
    is_choice: Callable[[str], bool] = lambda field: False

    def name_of(self, element: Json) -> Json:
        for field in self.name:
            element = _fields(element).get(field)
        return element


def _same_json(one: Json, other: Json, type_: Any) -> bool:
    """For Python 1 equals true; as JSON they differ."""
    return msgspec.json.encode(one, order="deterministic") == msgspec.json.encode(other, order="deterministic")


def _as_merged(merged: Fields, current: Fields, old: Fields, new: Fields) -> Fields:
    return merged


class MergeRules(Struct, frozen=True):
    """What a merge has to know of a kind. The default compares byte for byte, and knows no named lists.

    `type` is the type of the whole document, and `is_same` tells whether two values of a type mean the same.
    `named_lists` are the lists with named elements, by the name of the field that holds the list. `whole` are the
    objects that are replaced whole, by the name of their field. `spec` is called last: it gets the merged spec and the
    specs of `current`, `old` and `new`, and returns the spec to write.
    """

    type: FieldType = Untyped()
    is_same: Callable[[Json, Json, Any], bool] = _same_json
    named_lists: Mapping[str, NamedList] = {}
    whole: frozenset[str] = frozenset()
    spec: Callable[[Fields, Fields, Fields, Fields], Fields] = _as_merged

    def merge(self, current: bytes, old: bytes, new: bytes) -> bytes | None:
        """The merge patch that brings `current` from `old` to `new`, tied to its resourceVersion; None if none is due.

        Only `metadata.labels`, `metadata.annotations` and `spec` are looked at.

        Raises msgspec.DecodeError or UnicodeDecodeError for what is no JSON object, and RecursionError for one that is
        nested too deeply.
        """
        held = _decode(current)
        before, past, wanted = _mutable(held), _mutable(_decode(old)), _mutable(_decode(new))
        after = self._merge_fields(self.type, before, past, wanted)
        after["spec"] = self.spec(*(_fields(each.get("spec")) for each in (after, before, past, wanted)))
        patch = self._difference(self.type, before, after)
        if not patch:
            return None
        metadata = _fields(held.get("metadata"))
        tie = {"uid": metadata.get("uid"), "resourceVersion": metadata.get("resourceVersion")}
        patch["metadata"] = {**_fields(patch.get("metadata")), **tie}
        return msgspec.json.encode(patch)

    def _merge(self, name: str, type_: FieldType, current: Json, old: Json, new: Json) -> Json:
        """One value of the three documents; `name` is the field that holds it."""
        if self.is_same(old, new, type_):
            return current
        if name in self.whole:
            return new
        if isinstance(current, dict) and isinstance(new, dict):
            return self._merge_fields(type_, current, _fields(old), new)
        if isinstance(current, dict) and isinstance(old, dict) and new is None:
            return self._merge_fields(type_, current, old, {}) or None
        if name in self.named_lists:
            kind = self.named_lists[name]
            lists = [_by_name(value, kind) for value in (current, old, new)]
            named = [elements for elements in lists if elements is not None]
            if len(named) == len(lists):
                merged = self._merge_elements(kind, type_.element, *named)
                return merged if merged or new is not None else None
        return new

    def _merge_fields(self, type_: FieldType, current: Fields, old: Fields, new: Fields) -> Fields:
        merged = dict(current)
        for name in dict.fromkeys((*old, *new)):
            value = self._merge(name, type_.field(name), current.get(name), old.get(name), new.get(name))
            if value is None:
                merged.pop(name, None)
            else:
                merged[name] = value
        return merged

    def _merge_elements(
        self, kind: NamedList, type_: FieldType, current: Fields, old: Fields, new: Fields
    ) -> list[Json]:
        """The elements of a named list, each merged for itself."""
        merged: Fields = dict(current)
        for name in dict.fromkeys((*old, *new)):
            if name not in new:
                merged.pop(name, None)
            elif name not in current and name not in old:
                merged[name] = new[name]
            elif name in current and not self.is_same(old.get(name), new[name], type_):
                held, then, now = _fields(current[name]), _fields(old.get(name)), _fields(new[name])
                inner = self._merge_fields(type_, held, then, now)
                merged[name] = self._with_choices(kind, type_, inner, then, now)
        return [merged[name] for name in _in_order(merged, current, old, new)]

    def _with_choices(self, kind: NamedList, type_: FieldType, merged: Fields, old: Fields, new: Fields) -> Fields:
        """The element without what a choice that the template changed displaces."""
        choices = [name for name in (*old, *new) if kind.is_choice(name)]
        if all(self.is_same(old.get(name), new.get(name), type_.field(name)) for name in choices):
            return merged
        return {name: value for name, value in merged.items() if name in new or not kind.is_choice(name)}

    def _difference(self, type_: FieldType, before: Fields, after: Fields) -> Fields:
        """The merge patch (RFC 7386) from one to the other: null removes a field, a list is replaced whole."""
        patch: Fields = {}
        for name, value in after.items():
            held, inner_type = before.get(name), type_.field(name)
            if isinstance(held, dict) and isinstance(value, dict):
                if inner := self._difference(inner_type, held, value):
                    patch[name] = inner
            elif not self.is_same(held, value, inner_type):
                patch[name] = value
        gone = (name for name in before if name not in after)
        return patch | {name: None for name in gone if not self.is_same(before[name], None, type_.field(name))}


PLAIN: Final = MergeRules()


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


def _in_order(names: Iterable[str], current: Iterable[str], old: Fields, new: Fields) -> list[str]:
    """The names in the order of `current`, or of `new` if the template changed the order. A name that is only in the
    other list goes right after the name it follows in that list.
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


def _fields(value: Json) -> Fields:
    """An object's fields; none where it is no object."""
    return value if isinstance(value, dict) else {}


def _by_name(value: Json, kind: NamedList) -> Fields | None:
    """The elements of a list by name; None where they have no names, or share one."""
    if value is None:
        return {}
    if not isinstance(value, list):
        return None
    named: Fields = {}
    for element in value:
        name = kind.name_of(element)
        if not isinstance(name, str) or name in named:
            return None
        named[name] = element
    return named
