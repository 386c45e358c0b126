"""From a command line and an environment to settings: argparse for `--help`, the option table for everything else.

A flag wins over its variable. An empty variable counts as not set: that is what a template leaves where it had nothing
to say. Each setting remembers where it was said, in the words of whoever said it, for whatever is found wrong later.
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, NoReturn

from controller.config.options import VARIABLE_PREFIX, Option, Unfit

_SHOWN = 60
"""Nobody needs more of a wrong value than this to find it."""

_ELSEWHERE = frozenset({"VMHERD_CACHE", "VMHERD_REVISION"})
"""Variables of other parts: where the sandbox keeps its binaries, and the commit that an image was built from."""

_SERVICE_LINK = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")
"""What a kubelet puts into each Pod for each Service of its namespace: a Service may well be named vmherd."""


class UsageError(Exception):
    """A flag or a variable is wrong. `str()` is one line for the person who typed it."""


class Setting(NamedTuple):
    """A value that somebody chose, and where they said so: `--workers 3` or `VMHERD_WORKERS=3`."""

    value: object
    where: str


class Operands(NamedTuple):
    """What a command takes beside flags, as one setting: `vmherd expose TYPE NAME`."""

    field: str
    usage: str
    help: str
    read: Callable[[Sequence[str]], object]  # raises Unfit


def read_settings(
    groups: Mapping[str, Sequence[Option]],
    defaults: object,
    *,
    command: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    operands: Operands | None = None,
) -> dict[str, Setting]:
    """The settings that were made, by field. Those left alone are not in it.

    Raises UsageError for the first thing that is wrong. `--help` prints to stdout and raises SystemExit(0).
    """
    options = [option for group in groups.values() for option in group]
    parser = _parser_for(groups, defaults, command, operands)
    known, rest = parser.parse_known_args(list(argv))
    if rest and (operands is None or any(map(_is_flag, rest))):
        raise UsageError(_unknown(rest, options, command))
    flags: dict[str, list[str]] = {field: texts for field, texts in vars(known).items() if texts is not None}
    settings = {}
    if operands is not None:
        settings[operands.field] = _from_operands(operands, rest)
    for option in options:
        if option.field in flags:
            settings[option.field] = _from_flag(option, flags[option.field])
        elif not option.flag_only and env.get(option.variable):
            text = env[option.variable]
            settings[option.field] = _read(option, text, f"{option.variable}={shown(text)}")
    return settings


def unknown_variables(options: Iterable[Option], env: Mapping[str, str]) -> tuple[str, ...]:
    """One line for each variable that looks like ours and is none: a typo, most often.

    No error, because the environment is not ours alone: a later version's variable may be set for all its replicas.
    """
    names = {option.variable for option in options}
    strange = (
        name
        for name in sorted(env)
        if name.startswith(VARIABLE_PREFIX) and name not in names | _ELSEWHERE and not _is_service_link(name)
    )
    return tuple(f"{name}: no such variable, ignored{did_you_mean(name, names, closeness=0.8)}" for name in strange)


def shown(text: str) -> str:
    """A value as it may stand in a line: short, printable, and quoted where its ends would be unclear."""
    short = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
    return short if short.isprintable() and short and " " not in short else repr(short)


class _Parser(argparse.ArgumentParser):
    """An argument parser that raises instead of printing its usage and ending the process."""

    def error(self, message: str) -> NoReturn:
        what, _, problem = message.removeprefix("argument ").partition(": ")
        raise UsageError(f"{what}: {problem.replace('expected one argument', 'expected a value after it')}")


def _parser_for(
    groups: Mapping[str, Sequence[Option]], defaults: object, command: str, operands: Operands | None
) -> argparse.ArgumentParser:
    parser = _Parser(
        prog=command,
        usage=f"{command} {operands.usage} [flags]" if operands else f"{command} [flags]",
        allow_abbrev=False,
        add_help=False,
        description=f"{operands.help + ' ' if operands else ''}"
        "A flag wins over its environment variable, which is named in brackets. "
        "Durations are written as 15s, 1m30s or 500ms; a plain number is seconds.",
    )
    parser.add_argument("-h", "--help", action="help", help="print this and exit")
    for title, options in groups.items():
        section = parser.add_argument_group(title)
        for option in options:
            _add(section, option, getattr(defaults, option.field))
    return parser


def _add(section: argparse._ArgumentGroup, option: Option, default: object) -> None:
    normally = option.unset or option.kind.show(default)
    variable = "" if option.flag_only else f"{option.variable}; "
    text = f"{option.help} [{variable}default: {normally}]".replace("%", "%%")
    kind = option.kind
    if kind.switch:
        # Go programs take `--leader-elect=false`, and so does this.
        section.add_argument(
            option.flag, dest=option.field, action="append", nargs="?", const="true", metavar=kind.metavar, help=text
        )
        section.add_argument(
            option.opposite,
            dest=option.field,
            action="append_const",
            const="false",
            help=f"the opposite of {option.flag}",
        )
    else:
        section.add_argument(*_names(option), dest=option.field, action="append", metavar=kind.metavar, help=text)


def _from_operands(operands: Operands, texts: Sequence[str]) -> Setting:
    where = " ".join(map(shown, texts))
    try:
        return Setting(operands.read(texts), where)
    except Unfit as unfit:
        raise UsageError(f"{where}: expected {unfit}" if texts else f"expected {unfit}") from None


def _from_flag(option: Option, texts: Sequence[str]) -> Setting:
    """Of a flag that was given twice the last one counts, unless it repeats."""
    text = ",".join(texts) if option.kind.repeats else texts[-1]
    return _read(option, text, f"{option.flag} {shown(text)}")


def _read(option: Option, text: str, where: str) -> Setting:
    try:
        return Setting(option.kind.read(text), where)
    except Unfit as unfit:
        raise UsageError(f"{where}: expected {unfit}") from None


def _unknown(rest: Sequence[str], options: Iterable[Option], command: str) -> str:
    see = f"'{command} --help' lists them"
    for text in rest:
        if _is_flag(text):
            flag = text.partition("=")[0]
            known = ("--help", *(name for option in options for name in _names(option)))
            return f"{shown(flag)}: no such flag{did_you_mean(flag, known) or f'; {see}'}"
    return f"{shown(rest[0])}: expected flags alone; {see}"


def _is_flag(text: str) -> bool:
    return text.startswith("-") and bool(text.strip("-"))


def _names(option: Option) -> tuple[str, ...]:
    if option.kind.switch:
        return option.flag, option.opposite
    return (option.short, option.flag) if option.short else (option.flag,)


def did_you_mean(name: str, known: Iterable[str], *, closeness: float = 0.65) -> str:
    """The end of a sentence about a name that is none: a suggestion, where one is close."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=closeness)
    return f"; did you mean {close[0]}?" if close else ""


def _is_service_link(name: str) -> bool:
    return _SERVICE_LINK.search(name) is not None
