"""Functions that write error messages about flags and environment variables.

Each message is one line on stderr. The line names the flag or the variable.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterable, Mapping

import click
from click.core import ParameterSource

from controller.config.options import VARIABLE_PREFIX, Option

_NOT_FLAGS = frozenset({"VMHERD_CACHE", "VMHERD_REVISION"})
"""Environment variables that have no flag. `VMHERD_CACHE` is the directory in which vmherd's sandbox stores downloaded
binaries. `VMHERD_REVISION` is the commit from which an image was built.
"""

_SERVICE_LINK = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")
"""Matches the environment variables that a kubelet sets in a Pod for each Service of the namespace.

These variables start with VMHERD_ if a Service is named vmherd.
"""


def complain(line: str) -> None:
    """Print one line on stderr. The output and the logs of the program are on stdout."""
    print(f"vmherd: {line}", file=sys.stderr, flush=True)


def describe(error: click.UsageError) -> str:
    """Describe the error, with the flag or the variable, in one line of printable characters."""
    if isinstance(error, click.BadParameter) and error.param and error.message:
        line = f"{_where(error.param, error.ctx)}: {error.message}"
    else:
        line = error.format_message()
        if error.ctx and not getattr(error, "possibilities", None):
            line = f"{line.rstrip('.')}; try '{error.ctx.command_path} --help'"
    return "".join(each if each.isprintable() else "?" for each in line.rstrip("."))


def unknown_variables(options: Iterable[Option], env: Mapping[str, str]) -> tuple[str, ...]:
    """Return one line for each environment variable that starts with VMHERD_ and has no flag.

    Most of these variables are typing errors. The program still starts, because a later version may know the variable.
    """
    names = {option.variable for option in options if option.variable}
    unknown = (
        name
        for name in sorted(env)
        if name.startswith(VARIABLE_PREFIX) and name not in names | _NOT_FLAGS and not _SERVICE_LINK.search(name)
    )
    return tuple(f"{name}: no such variable, ignored{_suggestion(name, names)}" for name in unknown)


def _where(param: click.Parameter, ctx: click.Context | None) -> str:
    """Return the name of the source of a value: the environment variable, the flag or the argument."""
    if isinstance(param, click.Argument):
        return param.human_readable_name
    if ctx and ctx.get_parameter_source(param.name) is ParameterSource.ENVIRONMENT:
        return str(param.envvar)
    return max(param.opts, key=len)


def _suggestion(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    return f"; did you mean {close[0]}?" if close else ""
