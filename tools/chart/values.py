"""Reads the chart's `values.yaml`: each value with its default and the comment above it.

A mapping with a comment is a single value. A mapping without a comment is a section, and each value in it needs a
comment. So every value is described, and `values.yaml` is the only source of the descriptions.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import TypeAlias

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
    """Return all values, in the order of the file. Raises Uncommented."""
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
