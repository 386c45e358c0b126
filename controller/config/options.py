"""The options and commands of this program, and their error messages: classes that extend those of click.

The names of flag and variable come from the field of the settings: `--lease-duration` and `VMHERD_LEASE_DURATION` set
`lease_duration_s`. click ignores an empty variable.
"""

import difflib
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from controller.config.types import DURATION, NAMESPACES, ON_OFF, Value

if TYPE_CHECKING:
    from click.parser import _OptionParser

VARIABLE_PREFIX = "VMHERD_"


class Option(click.Option):
    """A flag and a variable for one field. `--help` shows `unset` instead of the `default`, if it is not empty."""

    def __init__(
        self,
        field: str,
        type: click.ParamType[Any],
        help: str,
        *,
        default: object = None,
        unset: str = "",
        short: str = "",
        has_variable: bool = True,
        **attributes: Any,
    ) -> None:
        name = field.removesuffix("_s").replace("_", "-")
        self.flag = f"--{name}"
        self.variable = VARIABLE_PREFIX + name.replace("-", "_").upper() if has_variable else None
        self.unset = unset
        if default is not None and not unset:
            attributes["default"] = getattr(type, "show", str)(default)
        super().__init__(
            [short, self.flag, field] if short else [self.flag, field],
            type=type,
            help=help,
            show_default=unset or True,
            envvar=self.variable,
            show_envvar=True,
            **attributes,
        )


class Switch(Option):
    """Users can write `--observe`, `--no-observe`, or, as in Go programs, `--observe=false`."""

    def __init__(self, field: str, help: str, *, default: bool = False, has_variable: bool = True) -> None:
        super().__init__(
            field, ON_OFF, help, default=default, is_flag=False, flag_value="on", has_variable=has_variable
        )
        self.secondary_opts = [f"--no-{self.flag.removeprefix('--')}"]

    def add_to_parser(self, parser: "_OptionParser", ctx: click.Context) -> None:
        super().add_to_parser(parser, ctx)
        parser.add_option(obj=self, opts=self.secondary_opts, dest=self.name, action="store_const", const="off")

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        return record and (f"{self.flag} / {self.secondary_opts[0]}", record[1])


class Listed(Option):
    """An option for a list. Users separate the entries with commas, or repeat the flag for each entry."""

    def __init__(self, field: str, help: str, *, type: Value = NAMESPACES, unset: str = "all") -> None:
        super().__init__(field, type, help, unset=unset, multiple=True, callback=_flat)


def _flat(ctx: click.Context, param: click.Parameter, values: Sequence[Sequence[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chain.from_iterable(values)))


class Command(click.Command):
    """A command whose `--help` lists its options under the headings of `groups`."""

    def __init__(self, *, groups: Mapping[str, Sequence[Option]], params: Sequence[click.Parameter], **attributes: Any):
        params = [*params, *chain.from_iterable(groups.values())]
        epilog = "A flag wins over its environment variable."
        if any(param.type.name == DURATION for param in params):
            epilog += " A duration is written as 15s, 1m30s or 500ms; a plain number is seconds."
        super().__init__(params=params, epilog=epilog, **attributes)
        self.groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_sections({**self.groups, "Other": [self.get_help_option(ctx)]}, ctx, formatter)


def write_sections(
    sections: Mapping[str, Sequence[click.Option | None]], ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    for title, options in sections.items():
        if records := [record for each in options if each and (record := each.get_help_record(ctx))]:
            with formatter.section(title):
                formatter.write_dl(records)


def chosen(ctx: click.Context) -> dict[str, Any]:
    given = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
    return {name: value for name, value in ctx.params.items() if ctx.get_parameter_source(name) in given}


_NOT_FLAGS = frozenset({"VMHERD_CACHE", "VMHERD_REVISION"})
"""Variables without a flag: the directory of the sandbox's downloads, and the commit of an image."""

_SERVICE_LINK = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")
"""Matches the variables that a kubelet sets in a Pod for a Service of the namespace, such as one named vmherd."""


def complain(line: str) -> None:
    """Print one line on stderr. The output and the logs of the program are on stdout."""
    print(f"vmherd: {line}", file=sys.stderr, flush=True)


def describe(error: click.UsageError) -> str:
    if isinstance(error, click.BadParameter) and error.param and error.message:
        line = f"{_where(error.param, error.ctx)}: {error.message}"
    else:
        line = error.format_message()
        if error.ctx and not getattr(error, "possibilities", None):
            line = f"{line.rstrip('.')}; try '{error.ctx.command_path} --help'"
    return "".join(each if each.isprintable() else "?" for each in line.rstrip("."))


def unknown_variables(options: Iterable[Option], env: Mapping[str, str]) -> tuple[str, ...]:
    """Return a line for each variable VMHERD_ without a flag. A later version may know it, so the program starts."""
    names = {option.variable for option in options if option.variable}
    unknown = (
        name
        for name in sorted(env)
        if name.startswith(VARIABLE_PREFIX) and name not in names | _NOT_FLAGS and not _SERVICE_LINK.search(name)
    )
    return tuple(f"{name}: no such variable, ignored{_suggestion(name, names)}" for name in unknown)


def _where(param: click.Parameter, ctx: click.Context | None) -> str:
    if isinstance(param, click.Argument):
        return param.human_readable_name
    if ctx and ctx.get_parameter_source(param.name) is ParameterSource.ENVIRONMENT:
        return str(param.envvar)
    return max(param.opts, key=len)


def _suggestion(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    return f"; did you mean {close[0]}?" if close else ""
