"""Whether two templates say the same: each is reduced to a normal form, and the normal forms are compared.

Go programs read KubeVirt's objects into types and write them back in other words: `resources: {}` appears, `1024Mi`
becomes `1Gi`, `creationTimestamp: null` comes and goes. The normal form is what all these spellings have in common. It
follows Go's types field by field (`api_types.json`, read from KubeVirt v1.9's source):

- null is absent, in every place;
- an empty object is absent if the field is a plain struct (`resources`). It has a meaning if the field is a pointer
  (`rng`, `tpm`, `blank`), and stays;
- an empty list or map is absent, and so are `""`, `0` and `false` if the field is no pointer;
- quantities and IP addresses count by their value;
- `running: true` is `runStrategy: Always`, and `running: false` is `runStrategy: Halted`;
- volumes, networks and dataVolumeTemplates count by their names. The order of all other lists has a meaning.

Of a field that the table does not know, a newer KubeVirt's perhaps, only null is absent.

A normal form is for comparing. It is not a valid object, and nothing of it is sent to the API server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from ipaddress import ip_address
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from controller.apimachinery.quantities import parse_quantity

Json: TypeAlias = object
"""A JSON value; None where there is none."""

Fields: TypeAlias = dict[str, Json]


class GoType(Struct, frozen=True):
    """What Go's types say of one field. `kind` is "" for a pointer, and for what the table does not know.

    `fields` holds the types of an object's fields. `[]` stands for a list's elements, `{}` for a map's values.
    """

    kind: str = ""
    fields: Mapping[str, GoType] = {}

    def field(self, name: str) -> GoType:
        return self.fields.get(name) or self.fields.get("{}") or UNKNOWN

    @property
    def element(self) -> GoType:
        return self.fields.get("[]") or UNKNOWN


UNKNOWN: Final = GoType()


def _read(node: object) -> GoType:
    if isinstance(node, dict):
        kind = node.get("", "")
        return GoType(str(kind), {name: _read(inner) for name, inner in node.items() if name})
    return GoType(str(node))


VM_TEMPLATE: Final = _read(msgspec.json.decode(files(__package__).joinpath("api_types.json").read_bytes()))
"""`virtualMachineTemplate` of a pool. A VirtualMachine has the same `metadata` and `spec`."""

VM_SPEC: Final = VM_TEMPLATE.field("spec")
VMI_TEMPLATE: Final = VM_SPEC.field("template")
VMI_SPEC: Final = VMI_TEMPLATE.field("spec")
DISKS: Final = VM_SPEC.field("dataVolumeTemplates")

_LISTED_BY_NAME: Final = (DISKS, VMI_SPEC.field("volumes"), VMI_SPEC.field("networks"))
_STRATEGIES: Final[Mapping[Json, str]] = {True: "Always", False: "Halted"}


def normal_form(value: Json, type_: GoType) -> Json:
    """The value in the form that all its spellings share; None if it is as good as absent."""
    match value:
        case dict():
            if type_ is VM_SPEC:
                value = with_run_strategy(value)
            fields = {name: normal_form(inner, type_.field(name)) for name, inner in value.items()}
            kept = {name: inner for name, inner in fields.items() if inner is not None}
            return kept if kept or type_.kind not in ("struct", "collection") else None
        case list():
            items = [normal_form(inner, type_.element) for inner in value]
            if any(type_ is each for each in _LISTED_BY_NAME):
                items = _in_order_of_names(items)
            return items if items or type_.kind != "collection" else None
        case _:
            return _normal_scalar(value, type_.kind)


def is_same(one: Json, other: Json, type_: GoType) -> bool:
    """True if both values mean the same."""
    return encoded(one) == encoded(other) or encoded(normal_form(one, type_)) == encoded(normal_form(other, type_))


def encoded(value: Json) -> bytes:
    """Canonical JSON. For Python 1 equals true; as JSON they differ."""
    return msgspec.json.encode(value, order="deterministic")


def strategy_of(vm_spec: Mapping[str, Json]) -> Json:
    """A VM's run strategy, in whichever of the two fields it stands; None if neither says anything."""
    strategy, running = vm_spec.get("runStrategy"), vm_spec.get("running")
    return _STRATEGIES.get(running) if strategy is None and isinstance(running, bool) else strategy


def with_run_strategy(vm_spec: Fields) -> Fields:
    """The VM spec with `runStrategy` in the place of `running`; unchanged if it has both, which KubeVirt rejects."""
    if not isinstance(vm_spec.get("running"), bool) or vm_spec.get("runStrategy") is not None:
        return vm_spec
    others = {name: value for name, value in vm_spec.items() if name != "running"}
    return {**others, "runStrategy": strategy_of(vm_spec)}


def differences(old: Json, new: Json, type_: GoType, path: str = "") -> Iterator[str]:
    """The paths at which two values differ in meaning, in the order of `old`, then of `new`."""
    yield from _differences(normal_form(old, type_), normal_form(new, type_), path)


def _differences(old: Json, new: Json, path: str) -> Iterator[str]:
    if encoded(old) == encoded(new):
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys((*old, *new)):
            yield from _differences(old.get(name), new.get(name), f"{path}.{name}" if path else name)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _differences(before, after, f"{path}[{index}]")
    else:
        yield path


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
    """An IP address as Go prints it: IPv4 without leading zeros, IPv6 in short form. Other text stays as it is."""
    try:
        plain = ".".join(str(int(part, 10)) for part in text.split(".")) if ":" not in text else text
        return str(ip_address(plain))
    except ValueError:
        return text


def _in_order_of_names(items: list[Json]) -> list[Json]:
    """The elements by name; as they are if one has no name of its own."""
    names = [_name_of(item) for item in items]
    if not all(names) or len(set(names)) < len(names):
        return items
    return [item for _, item in sorted(zip(names, items, strict=True), key=lambda pair: pair[0])]


def _name_of(item: Json) -> str:
    fields = item if isinstance(item, dict) else {}
    metadata = fields.get("metadata")
    name = fields.get("name") or (metadata.get("name") if isinstance(metadata, dict) else None)
    return name if isinstance(name, str) else ""
