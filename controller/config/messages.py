"""Error messages about flags and variables: one line on stderr that names the flag or the variable."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterable, Mapping

import click
from click.core import ParameterSource

from controller.config.options import VARIABLE_PREFIX, Option

_NOT_FLAGS = frozenset({"VMHERD_CACHE", "VMHERD_REVISION"})
"""Variables without a flag: the directory of the sandbox's binaries, and the commit from which an image was built."""

_SERVICE_LINK = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")
"""The variables that a kubelet sets in each Pod for each Service of the namespace. A Service can be named vmherd."""


def complain(line: str) -> None:
    """Print one line on stderr, apart from the output and the logs on stdout."""
    print(f"vmherd: {line}", file=sys.stderr, flush=True)


def describe(error: click.UsageError) -> str:
    """One printable line: the flag or the variable, and what is wrong with it."""
    if isinstance(error, click.BadParameter) and error.param and error.message:
        line = f"{_where(error.param, error.ctx)}: {error.message}"
    else:
        line = error.format_message()
        if error.ctx and not getattr(error, "possibilities", None):
            line = f"{line.rstrip('.')}; try '{error.ctx.command_path} --help'"
    return "".join(each if each.isprintable() else "?" for each in line.rstrip("."))


def unknown_variables(options: Iterable[Option], env: Mapping[str, str]) -> tuple[str, ...]:
    """One line for each variable that starts with VMHERD_ and has no flag. It is a typo most of the time.

    These variables are not an error: the environment may be shared with a later version that knows them.
    """
    names = {option.variable for option in options if option.variable}
    unknown = (
        name
        for name in sorted(env)
        if name.startswith(VARIABLE_PREFIX) and name not in names | _NOT_FLAGS and not _SERVICE_LINK.search(name)
    )
    return tuple(f"{name}: no such variable, ignored{_suggestion(name, names)}" for name in unknown)


def _where(param: click.Parameter, ctx: click.Context | None) -> str:
    """The name of the variable or of the flag that the value came from."""
    if isinstance(param, click.Argument):
        return param.human_readable_name
    if ctx and ctx.get_parameter_source(param.name) is ParameterSource.ENVIRONMENT:
        return str(param.envvar)
    return max(param.opts, key=len)


def _suggestion(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    return f"; did you mean {close[0]}?" if close else ""
