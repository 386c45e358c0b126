"""Compares two templates by meaning, in a normal form that is never sent to the API server.

Go programs encode objects again with another spelling: they add `resources: {}`, write `1024Mi` as `1Gi`, or add
`creationTimestamp: null`. The rules depend on the Go type of each field, which `api_types.json` has from KubeVirt v1.9:

- A null is the same as an absent field. For a field that is not in the table, nothing else is.
- An empty object is the same as an absent field in a plain struct (`resources`), but not in a pointer (`rng`).
- An empty list or map, `""`, `0` and `false` are the same as an absent field, except in a pointer.
- Quantities and IP addresses are compared by value.
- `running: true` is the same as `runStrategy: Always`, and `running: false` is the same as `runStrategy: Halted`.
- Volumes, networks and dataVolumeTemplates are compared by name. In all other lists the order has a meaning.
"""

from collections.abc import Iterator, Mapping
from importlib.resources import files
from ipaddress import ip_address
from itertools import islice
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from controller.apimachinery.quantities import parse_quantity
from controller.apimachinery.three_way_merge import Made, Meanings

Json: TypeAlias = object
"""A decoded JSON value, or None if the field is absent."""

Fields: TypeAlias = dict[str, Json]
Path: TypeAlias = tuple[str, ...]

MOST_DIFFERENCES: Final = 3


class GoType(Struct, frozen=True):
    """The Go type of one field. `kind` names the rule for comparing values, such as "struct", "collection" or
    "quantity". It is "" for a pointer field and for an unknown field. `fields` has the types of an object's fields by
    name, that of a list's elements by `[]`, and that of a map's values by `{}`.
    """

    kind: str = ""
    fields: Mapping[str, "GoType"] = {}

    def field(self, name: str) -> "GoType":
        return self.fields.get(name) or self.fields.get("{}") or UNKNOWN

    @property
    def element(self) -> "GoType":
        return self.fields.get("[]") or UNKNOWN


UNKNOWN: Final = GoType()


def _read(node: object) -> GoType:
    if isinstance(node, dict):
        kind = node.get("", "")
        return GoType(str(kind), {name: _read(inner) for name, inner in node.items() if name})
    return GoType(str(node))


def _read_table(name: str) -> GoType:
    return _read(msgspec.json.decode(files(__package__).joinpath(name).read_bytes()))


VM_TEMPLATE: Final = _read_table("api_types.json")
"""The type of a pool's `virtualMachineTemplate`. A VirtualMachine has the same `metadata` and `spec`."""

VM_SPEC: Final = VM_TEMPLATE.field("spec")
VMI_TEMPLATE: Final = VM_SPEC.field("template")
VMI_SPEC: Final = VMI_TEMPLATE.field("spec")
DISKS: Final = VM_SPEC.field("dataVolumeTemplates")

HASHED_SPEC: Final = _read_table("hash_types.json")
"""The type of a VMI spec, with the types of KubeVirt v1.9, for the template hash of a set. It never gets a field of
`api_types.json`: another hash of an unchanged template would make all VMIs of the set outdated.
"""

_LISTED_BY_NAME: Final = (
    DISKS,
    *(spec.field(name) for spec in (VMI_SPEC, HASHED_SPEC) for name in ("volumes", "networks")),
)
_STRATEGIES: Final[Mapping[Json, str]] = {True: "Always", False: "Halted"}


def normal_form(value: Json, type_: GoType, made: Made | None = None) -> Json:
    """Return the normal form, or None for the meaning of an absent field. For `made`, see `Normalise`."""
    normal: Json
    match value:
        case dict():
            written = with_run_strategy(value) if type_ is VM_SPEC else value
            fields = {name: normal_form(inner, type_.field(name), made) for name, inner in written.items()}
            kept = {name: inner for name, inner in fields.items() if inner is not None}
            normal = kept if kept or type_.kind not in ("struct", "collection") else None
        case list():
            items = [normal_form(inner, type_.element, made) for inner in value]
            if any(type_ is each for each in _LISTED_BY_NAME):
                items = _in_order_of_names(items, value)
            normal = items if items or type_.kind != "collection" else None
        case _:
            normal = _normal_scalar(value, type_.kind)
    return normal if made is None else made(value, type_, normal)


def is_same(one: Json, other: Json, type_: GoType) -> bool:
    return encoded(normal_form(one, type_)) == encoded(normal_form(other, type_))


def encoded(value: Json) -> bytes:
    """Return the value as canonical JSON. Callers compare values as JSON because Python treats 1 and True as equal."""
    return msgspec.json.encode(value, order="deterministic")


def value_at(value: Json, path: Path) -> Json:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def without(value: Json, path: Path) -> Json:
    if not isinstance(value, dict) or path[0] not in value:
        return value
    first, *rest = path
    others: Fields = {name: inner for name, inner in value.items() if name != first}
    return {**others, first: without(value[first], tuple(rest))} if rest else others


def strategy_of(vm_spec: Mapping[str, Json]) -> Json:
    """Return the run strategy of a VM, from `running` if `runStrategy` is absent, or None without both."""
    strategy, running = vm_spec.get("runStrategy"), vm_spec.get("running")
    return _STRATEGIES.get(running) if strategy is None and isinstance(running, bool) else strategy


def with_run_strategy(vm_spec: Fields) -> Fields:
    """Return the VM spec with `runStrategy` in place of `running`, unless it has both, which KubeVirt rejects."""
    if not isinstance(vm_spec.get("running"), bool) or vm_spec.get("runStrategy") is not None:
        return vm_spec
    others = {name: value for name, value in vm_spec.items() if name != "running"}
    return {**others, "runStrategy": strategy_of(vm_spec)}


def differences(old: Json, new: Json, type_: GoType, path: str = "") -> Iterator[str]:
    """Yield the paths at which two values differ in meaning, in the order of `old`, then of `new`."""
    before, after, meanings = normal_form(old, type_), normal_form(new, type_), Meanings(normal_form)
    if not meanings.is_same(before, after, UNKNOWN):
        yield from _differences(before, after, path, meanings)


def first_differences(old: Json, new: Json, type_: GoType) -> str:
    """Return the first paths of `differences`, for a reader, or ""."""
    paths = list(islice(differences(old, new, type_), MOST_DIFFERENCES + 1))
    return ", ".join(paths[:MOST_DIFFERENCES]) + (" and more" if len(paths) > MOST_DIFFERENCES else "")


def _differences(old: Json, new: Json, path: str, meanings: Meanings) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        names = dict.fromkeys((*old, *new))
        parts = ((f".{name}" if path else name, old.get(name), new.get(name)) for name in names)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        parts = ((f"[{index}]", *pair) for index, pair in enumerate(zip(old, new, strict=True)))
    else:
        yield path
        return
    for part, before, after in parts:
        if not meanings.is_same(before, after, UNKNOWN):
            yield from _differences(before, after, path + part, meanings)


def _normal_scalar(value: Json, kind: str) -> Json:
    match kind:
        case "quantity" | "quantity-or-zero" if isinstance(value, str | int | float) and not isinstance(value, bool):
            amount = parse_quantity(value)
            if amount is None:
                return value
            return None if not amount and kind == "quantity-or-zero" else str(amount)
        case "address" if isinstance(value, str):
            return _normal_address(value)
        case "cidr" if isinstance(value, str) and value:
            address, slash, size = value.partition("/")
            return f"{_normal_address(address)}{slash}{size}"
        case "scalar" | "cidr":
            return None if value in ("", 0) else value
        case _:
            return value


def _normal_address(text: str) -> str:
    """Return an IP address in Go's format: IPv4 without leading zeros, IPv6 in short form. Other text is unchanged."""
    try:
        plain = ".".join(str(int(part, 10)) for part in text.split(".")) if ":" not in text else text
        return str(ip_address(plain))
    except ValueError:
        return text


def _in_order_of_names(items: list[Json], written: list[Json]) -> list[Json]:
    """Return the elements sorted by name, or unchanged without unique names. `written` has them as written."""
    names = list(map(_name_of, written))
    if not all(names) or len(set(names)) < len(names):
        return items
    return [item for _, item in sorted(zip(names, items, strict=True), key=lambda pair: pair[0])]


def _name_of(item: Json) -> str:
    fields = item if isinstance(item, dict) else {}
    metadata = fields.get("metadata")
    name = fields.get("name") or (metadata.get("name") if isinstance(metadata, dict) else None)
    return name if isinstance(name, str) else ""
