"""This module has the command `vmherd demo`, which shows on a local control plane how vmherd works.

Without options, the demo needs a terminal. The demo applies a replica set and a pool, and shows their state in tables.
Keys start experiments, and the tables show their effect. The user can also paste the same commands into another
terminal. The key q ends the demo with the plugin's view of the objects, and Ctrl-C ends the demo at once.

With `--once`, the demo needs no terminal. It applies the same objects, and makes the experiments one after the other.
The exit code is 0 only if every step finished within its time limit.

At the end, the demo stops all its processes and removes all its files.
"""

import signal
import sys
from typing import NoReturn

import click
from rich.console import Console

from sandbox.binaries import BinariesUnavailable
from sandbox.controlplane import ControlPlaneError
from sandbox.crds import CrdError
from sandbox.demo.cluster import DemoFailed, running_cluster
from sandbox.demo.once import run_once
from sandbox.demo.watch import watch
from sandbox.kubectl import KubectlFailed, KubectlMissing


@click.command("demo")
@click.option("--once", is_flag=True, help="run all steps, print the results, and end; needs no terminal")
def command(*, once: bool) -> int:
    """Watch a replica set and a pool on a local control plane.

    Keys scale, update, break and heal them. The exit code is 0, 1 if a step failed, or 130 after Ctrl-C with --once.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    try:
        _run(once=once)
    except KeyboardInterrupt:
        return 130 if once else 0
    except (BinariesUnavailable, ControlPlaneError, CrdError, DemoFailed, KubectlFailed, KubectlMissing) as error:
        raise click.ClickException(f"demo: {error}") from error
    return 0


def _run(*, once: bool) -> None:
    if not once and not Console().is_terminal:
        raise DemoFailed("the output is not a terminal: use `vmherd demo --once`")
    if not once and not sys.stdin.isatty():
        raise DemoFailed("the input is not a terminal: use `vmherd demo --once`")
    with running_cluster() as cluster:
        if once:
            run_once(cluster)
        else:
            watch(cluster)


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt
