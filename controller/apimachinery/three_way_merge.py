"""A three-way merge applies the changes between `old` and `new` to `current`, the object on the API server.

`old` and `new` are the object according to the old and the new template. Only a value that differs between them
changes, so an object that equals `old` becomes equal to `new`.

JSON objects are merged field by field. One that is not in `new` loses only the fields that it has in `old`.

Lists whose elements have names (named lists) are merged element by element, in the order of `current`, or of `new` if
the templates' order differs. An element that is not in `new` is removed as a whole, and one that a user removed is not
added again. Any other list that differs is replaced as a whole.

`MergeRules` compares values by meaning, and names the named lists and the fields that exclude each other.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final, Protocol, TypeAlias

import msgspec
from msgspec import Struct

Json: TypeAlias = object

Made: TypeAlias = Callable[[Json, Any, Json], Json]
"""Gets a value, its type and its normal form. Returns what takes the place of the normal form in that around it."""

Normalise: TypeAlias = Callable[[Json, Any, Made], Json]
"""A function that returns the normal form of a value of a type. It calls `Made` for the value and for each value inside
it, from the inside out. The normal form is None if the value has the same meaning as an absent field.
"""


class Meanings:
    """Gives each meaning a number, so two values with the same number have the same meaning. The number of an object or
    list depends on those inside it, and is remembered: all comparisons of a document cost as much as one. The documents
    must not change.
    """

    def __init__(self, normalise: Normalise) -> None:
        self._normalise: Final = normalise
        self._numbers: Final[dict[Hashable, int]] = {}
        # The entries also keep the values alive. Otherwise another value could get the same `id`.
        self._seen: Final[dict[tuple[int, int], tuple[Json, Json]]] = {}

    def is_same(self, one: Json, other: Json, type_: Any) -> bool:
        return one is other or self._number_of(one, type_) == self._number_of(other, type_)

    def _number_of(self, value: Json, type_: Any) -> Json:
        seen = self._seen.get((id(value), id(type_)))
        return seen[1] if seen is not None else self._normalise(value, type_, self._numbered)

    def _numbered(self, value: Json, type_: Any, normal: Json) -> Json:
        number = None if normal is None else self._numbers.setdefault(_key_of(normal), len(self._numbers))
        if isinstance(value, dict | list):
            self._seen[id(value), id(type_)] = (value, number)
        return number


def _key_of(normal: Json) -> Hashable:
    """Return a key for a scalar, or for an object or list of numbers. Python treats 1 and True as equal."""
    if isinstance(normal, dict):
        return ("{", *sorted(normal.items()))
    return ("[", *normal) if isinstance(normal, list) else msgspec.json.encode(normal)


Fields: TypeAlias = dict[str, Json]


class FieldType(Protocol):
    """The type of a JSON value. The merge uses the type to decide if two values have the same meaning."""

    def field(self, name: str) -> "FieldType": ...

    @property
    def element(self) -> "FieldType": ...


class NamedList(Struct, frozen=True):
    """A list with names at the path `name`. Fields of an element with `is_choice` exclude each other."""

    name: tuple[str, ...] = ("name",)
    is_choice: Callable[[str], bool] = lambda field: False

    def name_of(self, element: Json) -> Json:
        for field in self.name:
            element = _fields(element).get(field)
        return element


class MergeRules(Struct, frozen=True):
    """The rules for merging objects of a kind.

    - `type`: the type of the whole document.
    - `normalise`: a function that returns the normal form of a value of a type. Values with equal normal forms have the
      same meaning.
    - `named_lists`: the rules for each list with named elements, by the name of the list's field.
    - `whole`: the names of the fields whose objects are replaced as a whole.
    - `spec`: a function that is called after the merge and returns the spec to write. Its arguments are the merged spec
      and the specs of `current`, `old` and `new`.
    """

    type: FieldType
    normalise: Normalise
    named_lists: Mapping[str, NamedList]
    whole: frozenset[str]
    spec: Callable[[Fields, Fields, Fields, Fields], Fields]

    def merge(self, current: bytes, old: bytes, new: bytes) -> bytes | None:
        """Return the merge patch that applies the changes between `old` and `new` to `current`, or None without a
        change.

        Only `metadata.labels`, `metadata.annotations` and `spec` are merged. The patch contains the UID and the
        resourceVersion of `current`. Raise msgspec.DecodeError or UnicodeDecodeError if a document is no JSON object,
        and RecursionError if it is nested too deeply.
        """
        document = _decode(current)
        before, past, wanted = _mutable(document), _mutable(_decode(old)), _mutable(_decode(new))
        merge = _Merge(self, Meanings(self.normalise))
        after = merge.fields(self.type, before, past, wanted)
        after["spec"] = self.spec(*(_fields(each.get("spec")) for each in (after, before, past, wanted)))
        patch = merge.difference(self.type, before, after)
        if not patch:
            return None
        metadata = _fields(document.get("metadata"))
        precondition = {"uid": metadata.get("uid"), "resourceVersion": metadata.get("resourceVersion")}
        patch["metadata"] = {**_fields(patch.get("metadata")), **precondition}
        return msgspec.json.encode(patch)


class _Merge(Struct, frozen=True):
    rules: MergeRules
    meanings: Meanings

    def _value(self, name: str, type_: FieldType, current: Json, old: Json, new: Json) -> Json:
        if self.meanings.is_same(old, new, type_):
            return current
        if name in self.rules.whole:
            return new
        if isinstance(current, dict) and isinstance(new, dict):
            return self.fields(type_, current, _fields(old), new)
        if isinstance(current, dict) and isinstance(old, dict) and new is None:
            return self.fields(type_, current, old, {}) or None
        if name in self.rules.named_lists:
            kind = self.rules.named_lists[name]
            lists = [_by_name(value, kind) for value in (current, old, new)]
            named = [elements for elements in lists if elements is not None]
            if len(named) == len(lists):
                merged = self._elements(kind, type_.element, *named)
                return merged if merged or new is not None else None
        return new

    def fields(self, type_: FieldType, current: Fields, old: Fields, new: Fields) -> Fields:
        merged = dict(current)
        for name in dict.fromkeys((*old, *new)):
            value = self._value(name, type_.field(name), current.get(name), old.get(name), new.get(name))
            if value is None:
                merged.pop(name, None)
            else:
                merged[name] = value
        return merged

    def _elements(self, kind: NamedList, type_: FieldType, current: Fields, old: Fields, new: Fields) -> list[Json]:
        merged: Fields = dict(current)
        for name in dict.fromkeys((*old, *new)):
            if name not in new:
                merged.pop(name, None)
            elif name not in current and name not in old:
                merged[name] = new[name]
            elif name in current and not self.meanings.is_same(old.get(name), new[name], type_):
                existing, before, after = _fields(current[name]), _fields(old.get(name)), _fields(new[name])
                inner = self.fields(type_, existing, before, after)
                merged[name] = self._with_choices(kind, type_, inner, before, after)
        return [merged[name] for name in _in_order(merged, current, old, new)]

    def _with_choices(self, kind: NamedList, type_: FieldType, merged: Fields, old: Fields, new: Fields) -> Fields:
        """Return the element with at most one of the fields that exclude each other: after a change, that of `new`."""
        choices = [name for name in (*old, *new) if kind.is_choice(name)]
        if all(self.meanings.is_same(old.get(name), new.get(name), type_.field(name)) for name in choices):
            return merged
        return {name: value for name, value in merged.items() if name in new or not kind.is_choice(name)}

    def difference(self, type_: FieldType, before: Fields, after: Fields) -> Fields:
        """Return the merge patch (RFC 7386) that changes `before` to `after`."""
        patch: Fields = {}
        for name, value in after.items():
            previous, inner_type = before.get(name), type_.field(name)
            if isinstance(previous, dict) and isinstance(value, dict):
                if inner := self.difference(inner_type, previous, value):
                    patch[name] = inner
            elif not self.meanings.is_same(previous, value, inner_type):
                patch[name] = value
        for name in before:
            if name not in after and not self.meanings.is_same(before[name], None, type_.field(name)):
                patch[name] = None
        return patch


def _decode(document: bytes) -> Fields:
    return _fields(_without_nulls(msgspec.json.decode(document, type=dict[str, object])))


def _without_nulls(value: Json) -> Json:
    """Return the value without the fields that are null. A null that is an element of a list stays."""
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def _mutable(document: Fields) -> Fields:
    """Return the parts that a template can change. Absent and empty labels or annotations mean the same."""
    metadata = _fields(document.get("metadata"))
    kept = {name: _fields(metadata.get(name)) for name in ("labels", "annotations")}
    return {"metadata": kept, "spec": _fields(document.get("spec"))}


def _in_order(names: Iterable[str], current: Fields, old: Fields, new: Fields) -> list[str]:
    """Return the names in the order of `current`, or of `new` if the templates have another order. A name that this
    order lacks goes after the name that precedes it in the other one.
    """
    is_reordered = [name for name in old if name in new] != [name for name in new if name in old]
    leading, other = (new, current) if is_reordered else (current, new)
    kept = frozenset(names)
    first: list[str] = []
    behind: dict[str, list[str]] = {name: [] for name in leading if name in kept}
    run = first
    for name in other:
        if name in behind:
            run = behind[name]
        elif name in kept:
            run.append(name)
    return [*first, *(each for name, others in behind.items() for each in (name, *others))]


def _fields(value: Json) -> Fields:
    return value if isinstance(value, dict) else {}


def _by_name(value: Json, kind: NamedList) -> Fields | None:
    """Return the elements of a list by name, or None for another value or names that are missing or occur twice."""
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
