"""This module has the command `vmherd demo`, which shows on a local control plane how vmherd works.

Without options, the demo needs a terminal. The demo applies a replica set and a pool, and shows their state in tables
until Ctrl-C. The user can paste the suggested commands into another terminal and see the effect in the tables.

With `--once`, the demo needs no terminal. It applies the same objects, scales the replica set and updates the pool.
Then it lets one VM fail, and the pool heals the VM. The exit code is 0 only if every step finished within its time
limit.

At the end, the demo stops all its processes and removes all its files.
"""

from __future__ import annotations

import shlex
import shutil
import signal
import time
from pathlib import Path
from typing import NoReturn

import click
from rich.console import Console
from rich.live import Live

from sandbox.binaries import BinariesUnavailable
from sandbox.controlplane import ControlPlaneError
from sandbox.crds import CrdError
from sandbox.demo_cluster import DemoCluster, DemoFailed, running_cluster
from sandbox.demo_steps import (
    BREAK,
    POOL_EXAMPLE,
    POOL_NAME,
    SET_EXAMPLE,
    SET_NAME,
    UPDATE,
    merge_patch,
    show_pool,
    show_set,
)
from sandbox.demo_view import draw
from sandbox.kubectl import KubectlFailed, KubectlMissing, kubectl_path, run_kubectl

REFRESH_S = 0.5

DETACH = merge_patch("vm", f"{POOL_NAME}-2", {"metadata": {"ownerReferences": None}})
SUGGESTIONS = (
    (
        "scale the replica set, and delete its VMIs: new VMIs replace them:",
        ("scale", "vmirs", SET_NAME, "--replicas", "5"),
        ("delete", "vmi", "-l", "myvmi=myvmi"),
    ),
    ("scale the pool:", ("scale", "vmpool", POOL_NAME, "--replicas", "6")),
    ("update the pool, one VM at a time (new VMs boot within 2 s):", UPDATE),
    ("make a VM fail: the pool replaces it after three failed starts:", *BREAK),
    ("detach a VM: it stays, and a VM with a new number replaces it:", DETACH),
    ("delete a VM: it is created again with the same name:", ("delete", "vm", f"{POOL_NAME}-0")),
    ("show the state and the Events of the pool:", ("describe", "vmpool", POOL_NAME)),
)
"""The commands that the demo suggests to the user. Each entry is a purpose and the arguments of kubectl commands."""


@click.command("demo")
@click.option("--once", is_flag=True, help="run all steps, print the results, and end; needs no terminal")
def command(*, once: bool) -> int:
    """Watch a replica set and a pool start, on a local control plane.

    The exit code is 0, 1 if a step failed, or 130 after Ctrl-C with --once.
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
    with running_cluster() as cluster:
        if once:
            show_set(cluster)
            show_pool(cluster)
        else:
            _watch(cluster)


def _watch(cluster: DemoCluster) -> None:
    """Apply the example objects and show their state until Ctrl-C."""
    for example in (SET_EXAMPLE, POOL_EXAMPLE):
        print(run_kubectl(cluster.kubeconfig, "apply", "-f", str(example)), end="")
    # Print the hints only once, above the tables. The tables are drawn twice a second, so their text is hard to copy.
    for line in _hints(cluster):
        print(line)
    console = Console()
    with Live(console=console, screen=False, auto_refresh=False) as live:
        while True:
            live.update(draw(cluster.view(), console.size.height), refresh=True)
            time.sleep(REFRESH_S)


def _hints(cluster: DemoCluster) -> list[str]:
    path = "" if shutil.which("kubectl") else f" PATH=$PATH:{Path(kubectl_path()).parent}"
    lines = ["", "In another terminal:", "", f"  export KUBECONFIG={cluster.kubeconfig}{path}"]
    for purpose, *commands in SUGGESTIONS:
        lines.append(f"  # {purpose}")
        lines += [f"  {shlex.join(('kubectl', *command))}" for command in commands]
    metrics = f"Metrics are at http://127.0.0.1:{cluster.metrics_port}/metrics."
    return [*lines, "", f"{metrics} Ctrl-C here stops everything.", ""]


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt
