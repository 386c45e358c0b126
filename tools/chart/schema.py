"""The JSON schema of the chart's values, from `values.yaml` and the limits in `schema.yaml`. A typo is an error."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from msgspec import Struct

Default: TypeAlias = str | int | float | bool | list[object] | dict[str, object] | None


class Value(Struct, frozen=True):
    path: tuple[str, ...]
    default: Default
    text: str

    @property
    def name(self) -> str:
        return ".".join(self.path)


class Uncommented(ValueError):
    """A value in `values.yaml` has no comment. `str()` names the value."""


@cache
def read_values(source: str) -> tuple[Value, ...]:
    """Return all values of `values.yaml` with the comments above them, in order. Raises Uncommented.

    A mapping with a comment is a value. One without a comment is a section, and each value in it needs a comment.
    """
    root = yaml.compose(source, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        raise Uncommented("values.yaml is not a mapping")
    return tuple(_values(root, (), source.splitlines()))


def _values(node: yaml.MappingNode, above: tuple[str, ...], lines: Sequence[str]) -> Iterator[Value]:
    for key, value in node.value:
        path = (*above, str(key.value))
        text = _comment(lines, key.start_mark.line, key.start_mark.column)
        if text:
            yield Value(path, _plain(value), text)
        elif isinstance(value, yaml.MappingNode) and value.value:
            yield from _values(value, path, lines)
        else:
            raise Uncommented(f"{'.'.join(path)} has no comment")


def _comment(lines: Sequence[str], line: int, column: int) -> str:
    start = line
    while start and lines[start - 1].startswith(" " * column + "#"):
        start -= 1
    return " ".join(text.strip().removeprefix("#").strip() for text in lines[start:line])


def _plain(node: yaml.Node) -> Default:
    default: Default = yaml.safe_load(yaml.serialize(node))
    return default


Schema: TypeAlias = dict[str, Any]

STRING_MAP: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
REFINED: Mapping[str, Schema] = yaml.safe_load(Path(__file__).with_name("schema.yaml").read_text())["values"]
"""Schemas that allow less than the type of the default value."""


class Unknown(ValueError):
    """`values.yaml` has no value of this name, or its default has no known type. `str()` names the value."""


def document(values: Sequence[Value]) -> str:
    """Return the text of `values.schema.json`. Raises `Unknown` for a value without a known type."""
    if unknown := REFINED.keys() - {value.name for value in values}:
        raise Unknown(f"not in values.yaml: {', '.join(sorted(unknown))}")
    root: Schema = {"$schema": "http://json-schema.org/draft-07/schema#", **_section(values, depth=0)}
    properties = root["properties"]
    # Helm passes the global values of a parent chart to every subchart, also those of other charts.
    properties["global"] = {**properties.get("global", {}), "additionalProperties": True}
    return json.dumps(root, indent=2) + "\n"


def _section(values: Iterable[Value], *, depth: int) -> Schema:
    grouped: dict[str, list[Value]] = {}
    for value in values:
        grouped.setdefault(value.path[depth], []).append(value)
    properties: dict[str, Schema] = {}
    for name, members in grouped.items():
        is_leaf = len(members[0].path) == depth + 1
        properties[name] = _leaf(members[0]) if is_leaf else _section(members, depth=depth + 1)
    kind = ["object", "null"] if depth else "object"
    return {"type": kind, "additionalProperties": False, "properties": properties}


def _leaf(value: Value) -> Schema:
    schema = REFINED.get(value.name) or _type_of(value.name, value.default)
    return {"description": value.text, **_nullable(schema)}


def _nullable(schema: Schema) -> Schema:
    """Return a schema that also allows null, for which the chart takes the default."""
    match schema:
        case {"oneOf": list(others)}:
            return {"oneOf": [*others, {"type": "null"}]}
        case {"enum": list(words)}:
            return {**schema, "type": [schema["type"], "null"], "enum": [*words, None]}
        case _:
            return {**schema, "type": [schema["type"], "null"]}


def _type_of(name: str, default: Default) -> Schema:
    match default:
        case bool():
            return {"type": "boolean"}
        case int():
            return {"type": "integer"}
        case str():
            return {"type": "string"}
        case dict():
            return STRING_MAP if name.lower().endswith(("labels", "annotations")) else {"type": "object"}
        case _:
            raise Unknown(f"{name}: the type of the default {default!r} is unknown: add the value to schema.yaml")
