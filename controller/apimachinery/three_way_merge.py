"""A three-way merge: it applies the changes between two documents to a third document.

`current` is the object as it is on the server. `old` and `new` are the same object as two templates describe it. Values
that are the same in both templates stay unchanged in `current`. Values that differ between the templates are set to the
value in `new`. So an object that equals `old` becomes equal to `new`.

Objects are merged field by field. If the new template does not contain an object any more, the fields of the object
that the old template did not contain stay.

Named lists are merged element by element. The order is that of `current`, or that of `new` if the template changed the
order. If the new template does not contain an element any more, the whole element is removed. If a user removed an
element from `current`, it is not added again. Any other list that the template changed is replaced as a whole.

`MergeRules` describes a kind: which values have the same meaning, which lists are named, and which fields exclude each
other. A field is not sent if its absence has the same meaning, and neither is a null for such a field.
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
    """The type of a value, for the comparison of two values."""

    def field(self, name: str) -> FieldType: ...

    @property
    def element(self) -> FieldType: ...


class Untyped:
    """An unknown type. The types of its fields and elements are unknown as well."""

    def field(self, name: str) -> FieldType:
        return self

    @property
    def element(self) -> FieldType:
        return self


class NamedList(Struct, frozen=True):
    """A list whose elements are identified by name, and the fields of an element that exclude each other.

    `name` is the path of the name in an element. `is_choice` returns true for a field that is one of several
    alternatives.
    """

    name: tuple[str, ...] = ("name",)
    is_choice: Callable[[str], bool] = lambda field: False

    def name_of(self, element: Json) -> Json:
        for field in self.name:
            element = _fields(element).get(field)
        return element


def _same_json(one: Json, other: Json, type_: Any) -> bool:
    """True if both values are the same JSON. They are compared as JSON because Python treats 1 and True as equal."""
    return msgspec.json.encode(one, order="deterministic") == msgspec.json.encode(other, order="deterministic")


def _as_merged(merged: Fields, current: Fields, old: Fields, new: Fields) -> Fields:
    return merged


class MergeRules(Struct, frozen=True):
    """The rules for merging objects of a kind. The default compares JSON values and has no named lists.

    `type` is the type of the whole document. `is_same` returns true if two values of a type have the same meaning.
    `named_lists` contains the lists with named elements, by the name of the field that contains the list. `whole`
    contains the names of the fields whose objects are replaced as a whole. `spec` is called last: it gets the merged
    spec and the specs of `current`, `old` and `new`, and returns the spec to write.
    """

    type: FieldType = Untyped()
    is_same: Callable[[Json, Json, Any], bool] = _same_json
    named_lists: Mapping[str, NamedList] = {}
    whole: frozenset[str] = frozenset()
    spec: Callable[[Fields, Fields, Fields, Fields], Fields] = _as_merged

    def merge(self, current: bytes, old: bytes, new: bytes) -> bytes | None:
        """The merge patch that applies the changes between `old` and `new` to `current`; None if nothing changes.

        The patch contains the UID and the resourceVersion of `current`. Only `metadata.labels`, `metadata.annotations`
        and `spec` are compared.

        Raises msgspec.DecodeError or UnicodeDecodeError if a document is not a JSON object, and RecursionError if it is
        nested too deeply.
        """
        document = _decode(current)
        before, past, wanted = _mutable(document), _mutable(_decode(old)), _mutable(_decode(new))
        after = self._merge_fields(self.type, before, past, wanted)
        after["spec"] = self.spec(*(_fields(each.get("spec")) for each in (after, before, past, wanted)))
        patch = self._difference(self.type, before, after)
        if not patch:
            return None
        metadata = _fields(document.get("metadata"))
        precondition = {"uid": metadata.get("uid"), "resourceVersion": metadata.get("resourceVersion")}
        patch["metadata"] = {**_fields(patch.get("metadata")), **precondition}
        return msgspec.json.encode(patch)

    def _merge(self, name: str, type_: FieldType, current: Json, old: Json, new: Json) -> Json:
        """The merged value of one field. `name` is the name of the field."""
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
        """The merged elements of a named list. Each element is merged separately."""
        merged: Fields = dict(current)
        for name in dict.fromkeys((*old, *new)):
            if name not in new:
                merged.pop(name, None)
            elif name not in current and name not in old:
                merged[name] = new[name]
            elif name in current and not self.is_same(old.get(name), new[name], type_):
                existing, before, after = _fields(current[name]), _fields(old.get(name)), _fields(new[name])
                inner = self._merge_fields(type_, existing, before, after)
                merged[name] = self._with_choices(kind, type_, inner, before, after)
        return [merged[name] for name in _in_order(merged, current, old, new)]

    def _with_choices(self, kind: NamedList, type_: FieldType, merged: Fields, old: Fields, new: Fields) -> Fields:
        """The element with only one of several alternatives. If the template changed the alternative, the ones that are
        not in the new template are removed.
        """
        choices = [name for name in (*old, *new) if kind.is_choice(name)]
        if all(self.is_same(old.get(name), new.get(name), type_.field(name)) for name in choices):
            return merged
        return {name: value for name, value in merged.items() if name in new or not kind.is_choice(name)}

    def _difference(self, type_: FieldType, before: Fields, after: Fields) -> Fields:
        """The merge patch (RFC 7386) from `before` to `after`. A null removes a field; a list is replaced whole."""
        patch: Fields = {}
        for name, value in after.items():
            previous, inner_type = before.get(name), type_.field(name)
            if isinstance(previous, dict) and isinstance(value, dict):
                if inner := self._difference(inner_type, previous, value):
                    patch[name] = inner
            elif not self.is_same(previous, value, inner_type):
                patch[name] = value
        removed = (name for name in before if name not in after)
        return patch | {name: None for name in removed if not self.is_same(before[name], None, type_.field(name))}


PLAIN: Final = MergeRules()


def _decode(document: bytes) -> Fields:
    return _fields(_without_nulls(msgspec.json.decode(document, type=dict[str, object])))


def _without_nulls(value: Json) -> Json:
    """The value without fields that are null. A null in a list is an element and stays."""
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def _mutable(document: Fields) -> Fields:
    """The parts of the document that a template can change: labels, annotations and spec. For the API server, absent
    labels are the same as empty labels.
    """
    metadata = _fields(document.get("metadata"))
    kept = {name: _fields(metadata.get(name)) for name in ("labels", "annotations")}
    return {"metadata": kept, "spec": _fields(document.get("spec"))}


def _in_order(names: Iterable[str], current: Iterable[str], old: Fields, new: Fields) -> list[str]:
    """The names in the order of `current`, or of `new` if the template changed the order. A name that is only in the
    other list goes right after the name it follows in that list.
    """
    is_reordered = [name for name in old if name in new] != [name for name in new if name in old]
    leading, other = (new, current) if is_reordered else (current, new)
    kept = frozenset(names)
    order = [name for name in leading if name in kept]
    position = 0
    for name in other:
        if name in kept:
            if name not in order:
                order.insert(position, name)
            position = order.index(name) + 1
    return order


def _fields(value: Json) -> Fields:
    """The fields of a JSON object; empty if the value is not an object."""
    return value if isinstance(value, dict) else {}


def _by_name(value: Json, kind: NamedList) -> Fields | None:
    """The elements of a list by name; None if an element has no name, or if two elements have the same name."""
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
