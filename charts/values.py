"""The values of the chart as `values.yaml` has them: each with its default and the comment above it.

A mapping with a comment is one value, whole; a mapping without one is a section, whose values have comments of their
own. So nothing goes without a word of explanation, and the file is the only place where it is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
    """A value has no comment. `str()` names it."""


def read_values(source: str) -> tuple[Value, ...]:
    """All of them, in their order. Raises Uncommented."""
    root = yaml.compose(source, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode):
        raise Uncommented("values.yaml is no mapping")
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
    """The lines of comment right above a key, in one."""
    start = line
    while start and lines[start - 1].startswith(" " * column + "#"):
        start -= 1
    return " ".join(text.strip().removeprefix("#").strip() for text in lines[start:line])


def _plain(node: yaml.Node) -> Default:
    default: Default = yaml.safe_load(yaml.serialize(node))
    return default
