"""Runs the steps of `vmherd demo --once`: commands that a user can copy, and that fail after a time limit."""

import shlex
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

from sandbox.demo import experiments as demo
from sandbox.demo.cluster import STEP_TIMEOUT_S, DemoCluster, DemoFailed
from sandbox.demo.experiments import POOL, POOL_SIZE, SET, SET_SIZE, Command
from sandbox.demo.runner import as_process, environment, one_line

TIMEOUT: Final = f"--timeout={STEP_TIMEOUT_S:g}s"


def run_once(cluster: DemoCluster) -> None:
    """Run all steps, and print their commands with the output. Raises DemoFailed."""
    for number, (heading, commands) in enumerate(STEPS.items(), start=1):
        print(f"\n=== Step {number} of {len(STEPS)}: {heading} ===", flush=True)
        for command in commands:
            print(f"\n$ {shlex.join(command)}", flush=True)
            print(output_of(cluster, command), end="", flush=True)


def output_of(cluster: DemoCluster, command: Command) -> str:
    """Run a command, and return its output. Raises DemoFailed if the command fails, or if a component has ended."""
    done = subprocess.run(
        as_process(command),
        env=environment(cluster.kubeconfig),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=2 * STEP_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        cluster.check()
        raise DemoFailed(f"{shlex.join(command)}: {one_line(done.stderr) or one_line(done.stdout)}")
    return done.stdout + done.stderr


def _plugin(verb: str, *subjects: str) -> Command:
    return ("kubectl", "vmherd", *verb.split(), *subjects)


def complete(subject: str) -> Command:
    return _plugin("rollout status", subject, TIMEOUT)


def _wait(subject: str, what: str) -> Command:
    return ("kubectl", "wait", subject, f"--for={what}", TIMEOUT)


def _scaled_set(size: int) -> Sequence[Command]:
    return demo.scale_command("vmirs", demo.SET_NAME, size), complete(SET)


SHOW_POOL: Final = ("kubectl", "get", "vmpool,vm")
SHOW_SET: Final = ("kubectl", "get", "vmirs,vmi")
STOPPED: Final = _wait(f"vm/{demo.POOL_NAME}-0", "jsonpath={.status.printableStatus}=ImagePullBackOff")

STEPS: Final[Mapping[str, Sequence[Command]]] = {
    f"create a replica set of {SET_SIZE} VMIs": (
        demo.apply_command(demo.SET_EXAMPLE),
        complete(SET),
        SHOW_SET,
        ("kubectl", "describe", "vmirs", demo.SET_NAME),
    ),
    "scale the replica set out and in": (*_scaled_set(SET_SIZE + 2), *_scaled_set(SET_SIZE - 1), SHOW_SET),
    f"create a pool of {POOL_SIZE} VMs": (demo.apply_command(demo.POOL_EXAMPLE), complete(POOL), SHOW_POOL),
    "update the pool, one VM at a time": (demo.UPDATE, complete(POOL)),
    "break a VM: the pool heals it": (*demo.FAIL, _wait(f"vm/{demo.BROKEN}", "delete"), complete(POOL)),
    "detach a VM: it stays, and another VM takes its place": (
        demo.detach_command(demo.DETACHED),
        complete(POOL),
        SHOW_POOL,
    ),
    "a bad image: the update stops at the first VM": (
        demo.BAD_IMAGE,
        STOPPED,
        _plugin("tree", POOL),
        _plugin("why", POOL),
    ),
    "undo: the pool returns to the template before": (
        demo.UNDO,
        complete(POOL),
        ("kubectl", "describe", "vmpool", demo.POOL_NAME),
    ),
    "what the plugin shows": (_plugin("tree", POOL, demo.SET), _plugin("why", POOL, demo.SET)),
}
