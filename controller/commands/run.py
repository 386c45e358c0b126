"""`vmherd run`: runs the controller until SIGTERM or SIGINT. Slow imports come late, so `--help` is fast."""

import importlib
import os
import resource
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from controller.config.options import Command, complain, unknown_variables
from controller.config.settings import GROUPS, OPTIONS, Config, make_config
from informers.http.pod import pod_namespace

if TYPE_CHECKING:
    import asyncio


@click.command("run", cls=Command, groups=GROUPS)
@click.pass_context
def command(ctx: click.Context, /, **_: Any) -> int:
    """Reconcile the replica sets and pools of a cluster, until SIGTERM."""
    config = make_config(ctx, pod_namespace=pod_namespace())
    for line in unknown_variables(OPTIONS.values(), os.environ):
        complain(line)
    return _run_until_done(config)


def _run_until_done(config: Config) -> int:
    import asyncio  # noqa: PLC0415  this module and the next one are slow to import

    from controller import app  # noqa: PLC0415

    _raise_file_limit()
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(app.run(config))
    except app.Fatal as error:
        raise click.ClickException("\n".join(error.lines)) from error


def _raise_file_limit() -> None:
    """Raise the soft limit of open files to the hard limit. Shells and systemd often set a soft limit of 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _loop_factory() -> Callable[[], "asyncio.AbstractEventLoop"] | None:
    try:
        uvloop = importlib.import_module("uvloop")
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
