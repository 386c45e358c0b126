"""This module runs the steps of `vmherd demo --once`, such as a scale, an update and a healing of the example objects.

The command `vmherd demo --once` fails if a step does not finish within its time limit, or if too many VMs are
unavailable. All commands are printed, so that the user can copy them into a terminal.
"""

import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct

from controller.kinds import POOLS, REPLICA_SETS
from sandbox.demo import experiments as demo
from sandbox.demo.cluster import STEP_TIMEOUT_S, DemoCluster, DemoFailed, until
from sandbox.demo.experiments import EXAMPLE_MAX_UNAVAILABLE, POOL, POOL_SIZE, SET_SIZE, Command
from sandbox.demo.runner import as_process, environment, one_line
from sandbox.demo.status import controller_of, is_complete, is_ready, name_of, owned_by, revision_of, status_of, uid_of
from sandbox.demo.tables import View

PULLING_FAILED: Final = ("ErrImagePull", "ImagePullBackOff")
SHOW_POOL: Final = ("kubectl", "get", "vmpool,vm")
SHOW_SET: Final = ("kubectl", "get", "vmirs,vmi")

Look: TypeAlias = Callable[[View, View], tuple[str, bool]]
"""A function of the objects before the commands, and of the present objects. It returns a line about the progress, and
whether the wait is over. It raises DemoFailed if too many VMs are unavailable.
"""


class Part(Struct, frozen=True):
    """Commands, the state to wait for after them, and a text about this state with a place for the seconds."""

    commands: tuple[Command, ...]
    look: Look | None = None
    result: str = ""


def run_once(cluster: DemoCluster) -> None:
    """Run all steps and print their results. Raises DemoFailed."""
    for number, (heading, parts) in enumerate(STEPS.items(), start=1):
        print(f"\n=== Step {number} of {len(STEPS)}: {heading} ===", flush=True)
        for part in parts:
            before = cluster.view()
            for command in part.commands:
                _show(cluster, command)
            if part.look is not None:
                took_s = until(_progress(cluster, before, part.look), heading)
                print(part.result.format(took_s), flush=True)


def _show(cluster: DemoCluster, command: Command) -> None:
    """Print a command and its output. Raises DemoFailed if the command fails."""
    print(f"\n$ {shlex.join(command)}", flush=True)
    done = subprocess.run(
        as_process(command),
        env=environment(cluster.kubeconfig),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=STEP_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise DemoFailed(f"{shlex.join(command)}: {one_line(done.stderr) or one_line(done.stdout)}")
    print(done.stdout + done.stderr, end="", flush=True)


def _progress(cluster: DemoCluster, before: View, look: Look) -> Callable[[], bool]:
    """Return a function that prints each new line about the progress, and returns whether the wait is over."""
    last = ""

    def is_over() -> bool:
        nonlocal last
        view = cluster.view()
        line, over = ("", False) if view.error else look(before, view)
        if line not in ("", last):
            print(line, flush=True)
            last = line
        return over

    return is_over


def _set_has(replicas: int) -> Look:
    """Wait for a replica set with this number of VMIs, all ready."""

    def look(_: View, now: View) -> tuple[str, bool]:
        sets = [each for each in now.of(REPLICA_SETS) if is_complete(each)]
        return "", any(each["spec"]["replicas"] == replicas == len(owned_by(each, now.vmis)) for each in sets)

    return look


def _is_pool_complete(_: View, now: View) -> tuple[str, bool]:
    return "", [*map(is_complete, now.of(POOLS))] == [True]


def follow_update(before: View, now: View) -> tuple[str, bool]:
    """Wait until all VMIs are ready and have a newer revision, and the status of the pool says so."""
    outdated, ready = {*map(revision_of, before.vmis)}, _ready_vmis(now)
    updated = sum(revision_of(vmi) not in outdated for vmi in ready)
    line = f"updated {updated} of {POOL_SIZE}, ready {len(ready)} of {POOL_SIZE}"
    return line, updated == POOL_SIZE and _is_pool_complete(before, now)[1]


def _ready_vmis(view: View) -> list[dict[str, Any]]:
    """Return the ready VMIs of the pool's VMs. Raises DemoFailed if too many VMs are unavailable."""
    [pool] = view.of(POOLS)
    names = {name_of(vm) for vm in owned_by(pool, view.vms)}
    ready = [vmi for vmi in view.vmis if name_of(vmi) in names and is_ready(vmi)]
    if (missing := POOL_SIZE - len(ready)) > EXAMPLE_MAX_UNAVAILABLE:
        raise DemoFailed(f"{missing} VMs were unavailable at once, but maxUnavailable allows {EXAMPLE_MAX_UNAVAILABLE}")
    return ready


def _is_healed(before: View, now: View) -> tuple[str, bool]:
    """Wait until the broken VM is replaced and ready, the pool is complete, and an Event reports the healing."""
    vm = _find(now, demo.BROKEN)
    if not vm:
        return f"{demo.BROKEN} no longer exists", False
    told = [event["message"] for event in now.events if _is_healing(event)]
    is_new = uid_of(vm) != uid_of(_find(before, demo.BROKEN)) and is_ready(vm)
    if is_new and told and _is_pool_complete(before, now)[1]:
        return f"healed; Event: {told[-1]}", True
    return f"{demo.BROKEN} {uid_of(vm)}: {status_of(vm).get('printableStatus', '')}", False


def _is_healing(event: dict[str, Any]) -> bool:
    message = event.get("message", "")
    return event["involvedObject"].get("kind") == POOLS.kind and demo.BROKEN in message and "healing" in message


def _is_detached(before: View, now: View) -> tuple[str, bool]:
    """Wait until the VM stays without the pool, and another VM has taken its place."""
    vm = _find(now, demo.DETACHED)
    stays = bool(vm) and controller_of(vm) is None and is_ready(vm)
    return "", stays and _is_pool_complete(before, now)[1] and len(now.vms) == POOL_SIZE + 1


def _has_stopped(_: View, now: View) -> tuple[str, bool]:
    return "", any(status_of(vm).get("printableStatus") in PULLING_FAILED for vm in now.vms)


def _update_waits(_: View, now: View) -> tuple[str, bool]:
    return f"the update waits: {len(_ready_vmis(now))} of {POOL_SIZE} VMs are ready", True


def _find(view: View, name: str) -> dict[str, Any]:
    """Return the VM with this name, or {} if there is no such VM."""
    return next((vm for vm in view.vms if name_of(vm) == name), {})


def _plugin(verb: str, *subjects: str) -> Command:
    return ("kubectl", "vmherd", verb, *subjects)


def _set_part(command: Command, replicas: int) -> Part:
    return Part((command,), _set_has(replicas), f"{replicas} of {replicas} ready after {{:.1f}}s")


ALL_READY: Final = "all VMs ready after {:.1f}s"
STEPS: Final[Mapping[str, Sequence[Part]]] = {
    f"create a replica set of {SET_SIZE} VMIs": (
        _set_part(demo.apply_command(demo.SET_EXAMPLE), SET_SIZE),
        Part((SHOW_SET, ("kubectl", "describe", "vmirs", demo.SET_NAME))),
    ),
    "scale the replica set out and in": (
        *(_set_part(demo.scale_command("vmirs", demo.SET_NAME, size), size) for size in (SET_SIZE + 2, SET_SIZE - 1)),
        Part((SHOW_SET,)),
    ),
    f"create a pool of {POOL_SIZE} VMs": (
        Part((demo.apply_command(demo.POOL_EXAMPLE),), _is_pool_complete, ALL_READY),
        Part((SHOW_POOL,)),
    ),
    "update the pool, one VM at a time": (
        Part(
            (demo.UPDATE,),
            follow_update,
            f"updated in {{:.1f}}s, at most {EXAMPLE_MAX_UNAVAILABLE} of {POOL_SIZE} unavailable",
        ),
    ),
    "break a VM: the pool heals it": (Part(demo.FAIL, _is_healed, ALL_READY),),
    "detach a VM: it stays, and another VM takes its place": (
        Part((demo.detach_command(demo.DETACHED),), _is_detached, ALL_READY),
        Part((SHOW_POOL,)),
    ),
    "a bad image: the update stops at the first VM": (
        Part((demo.BAD_IMAGE,), _has_stopped, "stopped after {:.1f}s"),
        Part((_plugin("tree", POOL), _plugin("why", POOL)), _update_waits),
    ),
    "undo: the pool returns to the template before": (
        Part((("kubectl", "vmherd", "rollout", "undo", POOL),), _is_pool_complete, ALL_READY),
        Part((("kubectl", "describe", "vmpool", demo.POOL_NAME),)),
    ),
    "what the plugin shows": (Part((_plugin("tree", POOL, demo.SET), _plugin("why", POOL, demo.SET))),),
}
