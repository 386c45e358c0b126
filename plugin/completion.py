"""The program `kubectl_complete-vmherd`. kubectl calls this program when a user presses TAB after `kubectl vmherd`.

The arguments are the words of the command line, and the last one is the incomplete word. Each line of the output is a
completion, a tab and a description. The last line is a colon and a number that tells kubectl how to go on. kubectl
offers the result in bash, zsh, fish and PowerShell.

The completion of commands and flags needs no cluster, and imports nothing slow. If names cannot be read, there are no
completions: an error message would destroy the user's command line.
"""

import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

import click
from msgspec import Struct

from plugin.cli import plugin, verb_first, without_rich
from plugin.flags import CONNECTION, Flags, flags_of
from plugin.verbs import A_NODE, ARGUMENTS, MEMBERS, OBJECTS, flags_of_verb

NO_SPACE: Final = 2
NO_FILES: Final = 4
FILES: Final = 0

NAMES_TIMEOUT_S: Final = 2.0
"""The time limit of each request that reads names for the completion."""

COMPLETION_S: Final = 5.0
"""The time limit of a completion. An exec plugin of the kubeconfig needs a part of it."""

REVISIONS: Final = "revisions"
"""The words after `--to-revision`: the numbers of the revisions of the object on the command line."""

SHOWN_TYPES: Final = {"vmpool": "pools of VMs", "vmirs": "replica sets of VMIs"}


class Completions(Struct, frozen=True):
    """The completions with their descriptions, and the number that tells kubectl how to go on."""

    words: tuple[tuple[str, str], ...] = ()
    directive: int = NO_FILES


class Line(Struct, frozen=True):
    """The command line before the incomplete word.

    `verb` is the full name of the command, such as `rollout status`, or "" if the command is not complete. `flag` is a
    flag whose value is the incomplete word, or None.
    """

    group: click.Group
    verb: str
    arguments: tuple[str, ...]
    values: dict[str, Any]
    flag: click.Option | None


def main(argv: Sequence[str] | None = None) -> int:
    """Print the completions of the last word, and return 0."""
    words = list(sys.argv[1:] if argv is None else argv) or [""]
    completions = complete(words[:-1], words[-1])
    for word, help in completions.words:
        print(f"{word}\t{help}" if help else word)
    print(f":{completions.directive}")
    return 0


def complete(before: Sequence[str], incomplete: str) -> Completions:
    """Return the completions of the incomplete word.

    The argument `before` contains the words that precede this word.
    """
    line = read_line(before)
    name, equals, value = incomplete.partition("=")
    flag = line.flag or (_option_named(line.verb, name) if equals else None)
    if flag is not None:
        # For `--flag=value`, each shell puts the flag before the values itself.
        return _values(line, flag, value if equals and line.flag is None else incomplete)
    if incomplete.startswith("-"):
        return _starting(incomplete, ((max(each.opts, key=len), each.help or "") for each in _options(line.verb)))
    if not line.verb:
        commands = line.group.commands.values()
        shown = ((each.name or "", each.short_help or "") for each in commands if not each.hidden)
        return _starting(incomplete, shown)
    return _names(line, incomplete)


def read_line(before: Sequence[str]) -> Line:
    """Read the words before the incomplete word. Unknown words count as arguments."""
    words = verb_first(list(before)) if before else []
    group: click.Group = plugin
    path: list[str] = []
    arguments: list[str] = []
    values: dict[str, Any] = {}
    flag = None
    is_leaf = False
    for word in words:
        name, equals, value = word.partition("=")
        option = _option_named(" ".join(path), name)
        if flag is not None:
            values[flag.name or ""] = _value(flag, word)
            flag = None
        elif option is not None and not option.is_flag:
            values.update({option.name or "": _value(option, value)} if equals else {})
            flag = None if equals else option
        elif word.startswith("-"):
            continue
        elif not is_leaf and word in group.commands:
            path.append(word)
            command = group.commands[word]
            is_leaf = not isinstance(command, click.Group)
            group = command if isinstance(command, click.Group) else group
        else:
            arguments.append(word)
    return Line(group, " ".join(path) if is_leaf else "", tuple(arguments), values, flag)


def _value(option: click.Option, text: str) -> object:
    return (text,) if option.multiple else text


def _options(verb: str) -> Iterable[click.Option]:
    return (*flags_of_verb(verb), *CONNECTION)


def _option_named(verb: str, name: str) -> click.Option | None:
    return next((each for each in _options(verb) if name in each.opts), None)


def _starting(incomplete: str, words: Iterable[tuple[str, str]], directive: int = NO_FILES) -> Completions:
    return Completions(tuple(each for each in words if each[0].startswith(incomplete)), directive)


def _values(line: Line, flag: click.Option, incomplete: str) -> Completions:
    """Return the values of a flag."""
    words: Iterable[tuple[str, str]] = ()
    if isinstance(flag.type, click.Choice):
        words = ((str(each), "") for each in flag.type.choices)
    elif flag.is_flag:
        words = (("true", ""), ("false", ""))
    elif flag.name == "namespace":
        words = _read(line, "namespaces", "")
    elif flag.name == "to_revision" and line.arguments:
        words = _read(line, REVISIONS, "")
    elif flag.name == "to":
        return _typed(line, incomplete, ("vmirs",))
    elif flag.name == "kubeconfig":
        return Completions((), FILES)
    return _starting(incomplete, words)


def _names(line: Line, incomplete: str) -> Completions:
    """Return names of objects. If the names need a type and the type is incomplete, return types."""
    kind = ARGUMENTS.get(line.verb)
    if kind is None:
        return Completions()
    if kind == A_NODE:
        return _starting(incomplete, () if line.arguments else _read(line, "nodes", ""))
    if kind != OBJECTS:
        return _typed(line, incomplete, ("vm", "vmi") if kind == MEMBERS else ("vmi",))
    first = line.arguments[0] if line.arguments else ""
    if first and "/" not in first:
        known = set(line.arguments[1:])
        return _starting(incomplete, (each for each in _read(line, first, "") if each[0] not in known))
    return _typed(line, incomplete, (*SHOWN_TYPES, *(("vm",) if line.verb in ("tree", "why") else ())))


def _typed(line: Line, incomplete: str, types: Sequence[str]) -> Completions:
    """Return words of the form TYPE/NAME, or TYPE/ while the type is incomplete."""
    type_, slash, _ = incomplete.partition("/")
    if slash:
        return _starting(incomplete, _read(line, type_, f"{type_}/"))
    shown = ((f"{each}/", SHOWN_TYPES.get(each, "")) for each in types)
    return _starting(incomplete, shown, NO_FILES | NO_SPACE)


def _read(line: Line, type_: str, prefix: str) -> list[tuple[str, str]]:
    """Return the names of all objects of a type with a description, or nothing if they cannot be read."""
    import asyncio  # noqa: PLC0415  these imports are slow

    with without_rich():
        from plugin import names  # noqa: PLC0415
    from plugin.subjects import TYPES  # noqa: PLC0415

    values = {**line.values, "request_timeout_s": NAMES_TIMEOUT_S}
    flags: Flags = flags_of(values)
    owner = line.arguments[-1].rpartition("/")[2] if type_ == REVISIONS else ""
    found: list[tuple[str, str]] = []
    with suppress(Exception):
        reading = names.read_revisions(flags, owner) if owner else names.read(flags, type_, TYPES)
        found = asyncio.run(asyncio.wait_for(reading, COMPLETION_S))
    return [(f"{prefix}{name}", text) for name, text in found]


if __name__ == "__main__":
    sys.exit(main())
