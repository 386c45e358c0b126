"""`vmherd demo` shows on a local control plane how vmherd works. Its processes and files are gone at the end."""

import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import termios
import tty
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Final

import click
from rich.console import Console
from rich.layout import Layout
from rich.live import Live

from sandbox.binaries import BinariesUnavailable
from sandbox.controlplane import ControlPlaneError, CrdError
from sandbox.demo import experiments as demo
from sandbox.demo.cluster import STEP_TIMEOUT_S, DemoCluster, DemoFailed, running_cluster
from sandbox.demo.hints import LINES, OTHER_KEYS, QUIT, TREE, draw_hints, joined, lines_to_paste, screen
from sandbox.demo.runner import Runner, as_process, environment, one_line
from sandbox.demo.tables import draw
from sandbox.kubectl import KubectlMissing, kubectl_path
from sandbox.running import handle_signals

TIMEOUT: Final = f"--timeout={STEP_TIMEOUT_S:g}s"


def run_once(cluster: DemoCluster) -> None:
    """Run all steps, and print their commands with the output. Raises DemoFailed."""
    for number, (heading, commands) in enumerate(STEPS.items(), start=1):
        print(f"\n=== Step {number} of {len(STEPS)}: {heading} ===", flush=True)
        for command in commands:
            print(f"\n$ {shlex.join(command)}", flush=True)
            print(output_of(cluster, command), end="", flush=True)


def output_of(cluster: DemoCluster, command: demo.Command) -> str:
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


def _plugin(verb: str, *subjects: str) -> demo.Command:
    return ("kubectl", "vmherd", *verb.split(), *subjects)


def complete(subject: str) -> demo.Command:
    return _plugin("rollout status", subject, TIMEOUT)


def _wait(subject: str, what: str) -> demo.Command:
    return ("kubectl", "wait", subject, f"--for={what}", TIMEOUT)


def _scaled_set(size: int) -> Sequence[demo.Command]:
    return demo.scale_command("vmirs", demo.SET_NAME, size), complete(demo.SET)


SHOW_POOL: Final = ("kubectl", "get", "vmpool,vm")
SHOW_SET: Final = ("kubectl", "get", "vmirs,vmi")
SPARE: Final = f"vm/{demo.POOL_NAME}-{demo.POOL_SIZE + 1}"
"""The standby: the detached VM still has its number."""

STOPPED: Final = _wait(f"vm/{demo.POOL_NAME}-0", "jsonpath={.status.printableStatus}=ImagePullBackOff")

STEPS: Final[Mapping[str, Sequence[demo.Command]]] = {
    f"create a replica set of {demo.SET_SIZE} VMIs": (
        demo.apply_command(demo.SET_EXAMPLE),
        complete(demo.SET),
        SHOW_SET,
        ("kubectl", "describe", "vmirs", demo.SET_NAME),
    ),
    "scale the replica set out and in": (*_scaled_set(demo.SET_SIZE + 2), *_scaled_set(demo.SET_SIZE - 1), SHOW_SET),
    f"create a pool of {demo.POOL_SIZE} VMs": (demo.apply_command(demo.POOL_EXAMPLE), complete(demo.POOL), SHOW_POOL),
    "update the pool, one VM at a time": (demo.UPDATE, complete(demo.POOL)),
    "break a VM: the pool heals it": (*demo.FAIL, _wait(f"vm/{demo.BROKEN}", "delete"), complete(demo.POOL)),
    "detach a VM: it stays, and another VM takes its place": (
        demo.detach_command(demo.DETACHED),
        complete(demo.POOL),
        SHOW_POOL,
    ),
    "a bad image: the update stops at the first VM": (
        demo.BAD_IMAGE,
        STOPPED,
        _plugin("tree", demo.POOL),
        _plugin("why", demo.POOL),
    ),
    "undo: the pool returns to the template before": (
        demo.UNDO,
        complete(demo.POOL),
        ("kubectl", "describe", "vmpool", demo.POOL_NAME),
    ),
    "a claim: a job takes a VM, and a standby starts in its place": (
        demo.REST,
        _wait(SPARE, "create"),
        _wait(SPARE, "jsonpath={.spec.runStrategy}=Halted"),
        demo.CLAIM,
        _wait(SPARE, "condition=Ready"),
        _plugin("tree", demo.POOL),
    ),
    "what the plugin shows": (_plugin("tree", demo.POOL, demo.SET), _plugin("why", demo.POOL, demo.SET)),
}


REFRESH_S = 0.5


def watch(cluster: DemoCluster) -> None:
    """Apply the example objects and show their state, until the user presses q. Raises DemoFailed."""
    print(output_of(cluster, demo.apply_command(demo.SET_EXAMPLE, demo.POOL_EXAMPLE)), end="", flush=True)
    console = Console()
    with keyboard() as keys, closing(Runner(cluster.kubeconfig)) as runner:
        key = ""
        while key != QUIT:
            if key in OTHER_KEYS:
                _page(cluster, key)
                key = _next_key(keys)
            else:
                key = _screen(cluster, console, keys, runner, first=key)
    if not keys.is_open:
        return
    for verb in ("tree", "why"):
        print()
        run_plugin(cluster, verb)
    print("\nstopping everything", flush=True)


def _screen(cluster: DemoCluster, console: Console, keys: "Keyboard", runner: Runner, *, first: str) -> str:
    """A terminal that cannot move its cursor gets the picture as text, after each key and each change of the report."""
    is_live = not console.is_dumb_terminal
    with Live(console=console, screen=True, auto_refresh=False) if is_live else nullcontext() as live:
        try:
            pressed, shown = first, None
            while keys.is_open:
                for key in pressed:
                    if key in OTHER_KEYS:
                        return key
                    if key in demo.EXPERIMENTS:
                        runner.press(demo.EXPERIMENTS[key])
                report = runner.report
                if live is not None:
                    live.update(_picture(cluster, console, runner), refresh=True)
                elif pressed or report != shown:
                    console.print(_picture(cluster, console, runner))
                    print("Press a key; any other key shows the state again.", flush=True)
                shown, pressed = report, keys.read(REFRESH_S)
        except KeyboardInterrupt:
            handle_signals(signal.SIG_IGN)  # the terminal is put in order first
            raise
    return QUIT


def _next_key(keys: "Keyboard") -> str:
    """Return the key after a page. Here, q goes back as any other key does."""
    print("\nPress any key to go back.", flush=True)
    while keys.is_open:
        if pressed := keys.read(None):
            return "" if pressed[0] == QUIT else pressed[0]
    return QUIT


def _picture(cluster: DemoCluster, console: Console, runner: Runner) -> Layout:
    width, height = console.size
    hints = draw_hints(runner.report, width=width, height=height, kubeconfig=cluster.kubeconfig)
    free = height - len(hints.plain.splitlines())
    return screen(draw(cluster.view(), width=width, height=free), hints)


def _page(cluster: DemoCluster, key: str) -> None:
    print()
    if key == LINES:
        print("\n".join(lines_to_paste(cluster.kubeconfig, _missing_path(), cluster.metrics_port)))
    else:
        run_plugin(cluster, "tree" if key == TREE else "why")


def _missing_path() -> str:
    """Return the directories of kubectl and of the plugin that PATH does not have, in the form of PATH."""
    ours = {"kubectl": Path(kubectl_path()).parent, "kubectl-vmherd": Path(sys.executable).parent}
    return ":".join(dict.fromkeys(str(folder) for program, folder in ours.items() if not shutil.which(program)))


def run_plugin(cluster: DemoCluster, verb: str, subjects: Sequence[str] = (demo.POOL, demo.SET)) -> None:
    command: demo.Command = ("kubectl", "vmherd", verb, *subjects)
    print(f"$ {joined([command])}", flush=True)
    subprocess.run(as_process(command), env=environment(cluster.kubeconfig), stdin=subprocess.DEVNULL, check=False)


CHUNK = 1024

PASTED = 8
"""The number of characters at once from which the input is a pasted text. A user cannot press so many keys at once."""

ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|O.|.)?", re.DOTALL)
"""The input of keys that are no characters, such as the arrow keys."""


class Keyboard:
    """The keys of the terminal. `is_open` is False after the terminal is closed."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.is_open = True

    def read(self, within_s: float | None) -> str:
        """Wait for keys at most `within_s` seconds, or without a limit. Return the keys, or "" if there are none."""
        if not select.select([self._descriptor], [], [], within_s)[0]:
            return ""
        try:
            data = os.read(self._descriptor, CHUNK)
        except OSError:
            data = b""
        self.is_open = bool(data)
        return keys_in(data.decode(errors="replace"))


def keys_in(text: str) -> str:
    """Return the characters of keys, as lower case. A pasted text has no keys."""
    characters = ESCAPES.sub("", text)
    return "" if len(characters) > PASTED else characters.lower()


@contextmanager
def keyboard() -> Iterator[Keyboard]:
    """Read keys without Enter and without an echo. Ctrl-C still interrupts, and Ctrl-Z does not stop the demo."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    now = termios.tcgetattr(descriptor)
    now[6][termios.VSUSP] = bytes([os.fpathconf(descriptor, "PC_VDISABLE")])
    termios.tcsetattr(descriptor, termios.TCSANOW, now)
    try:
        yield Keyboard(descriptor)
    finally:
        with suppress(termios.error):  # the terminal is closed
            termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)


@click.command("demo")
@click.option("--once", is_flag=True, help="run all steps, print the results, and end; needs no terminal")
def command(*, once: bool) -> int:
    """Watch a replica set and a pool on a local control plane.

    Keys scale, update, break and heal them. The exit code is 0, 1 if a step failed, or 130 after Ctrl-C with --once.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        _run(once=once)
    except KeyboardInterrupt:
        return 130 if once else 0
    except (BinariesUnavailable, ControlPlaneError, CrdError, DemoFailed, KubectlMissing) as error:
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
