"""The command `vmherd`: which of its commands is meant, and the exit code.

    0  it went well          1  it failed at run time          2  it was called wrongly          130  Ctrl-C

Whatever a person can have caused is one line on stderr and no traceback. Each command is imported when it is asked
for: `--help` answers at once, and `demo` and `sandbox` may be missing from an installation, as from the image.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from controller.config.flags import UsageError, did_you_mean, shown, unknown_variables
from controller.config.settings import OPTIONS, Config, parse
from controller.version import version

OK, FAILED, MISUSED, INTERRUPTED = 0, 1, 2, 130

POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

SANDBOX_PARTS = ("sandbox", "rich", "trustme", "yaml")


class Command(NamedTuple):
    help: str
    run: Callable[[Sequence[str]], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the arguments ask for, and return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(arguments)
    except UsageError as error:
        complain(str(error))
        return MISUSED
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as done:  # argparse has printed what `--help` asked for
        return done.code if isinstance(done.code, int) else OK


def complain(line: str) -> None:
    """Say one line on stderr, where it mixes with neither logs nor output."""
    print(f"vmherd: {line}", file=sys.stderr, flush=True)


def _dispatch(arguments: Sequence[str]) -> int:
    if not arguments:
        print(_help(), end="", file=sys.stderr)
        return MISUSED
    name, *rest = arguments
    if name in ("-h", "--help", "help"):
        print(_help(), end="")
        return OK
    if name == "--version":
        return _version(())
    if name not in COMMANDS:
        known = ", ".join(COMMANDS)
        raise UsageError(f"{shown(name)}: no such command{did_you_mean(name, COMMANDS) or f'; there are {known}'}")
    return COMMANDS[name].run(rest)


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.help}\n" for name, command in COMMANDS.items()]
    return (
        "usage: vmherd COMMAND [flags]\n\n"
        "A replica controller for virtual machines on Kubernetes.\n\n"
        f"commands:\n{''.join(lines)}\n"
        "'vmherd COMMAND --help' tells more; 'vmherd --version' prints the version.\n"
    )


def _run(arguments: Sequence[str]) -> int:
    config = parse(arguments, os.environ, pod_namespace=_pod_namespace())
    for line in unknown_variables(OPTIONS, os.environ):
        complain(line)
    return _run_until_done(config)


def _run_until_done(config: Config) -> int:
    from controller import app  # noqa: PLC0415  the one slow import, for the one command that needs it

    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(app.run(config))
    except app.Fatal as error:
        for line in error.lines:
            complain(line)
        return FAILED


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed: the same loop, faster."""
    try:
        uvloop = importlib.import_module("uvloop")
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _pod_namespace() -> str:
    try:
        return POD_NAMESPACE.read_text().strip()
    except OSError:
        return ""


def _takeover(arguments: Sequence[str]) -> int:
    return _once("takeover", arguments)


def _cleanup(arguments: Sequence[str]) -> int:
    return _once("cleanup", arguments)


def _expose(arguments: Sequence[str]) -> int:
    return _once("expose", arguments)


def _once(command: str, arguments: Sequence[str]) -> int:
    """Run `controller.commands.<command>.main`, which does one thing and ends."""
    from controller.commands.command import CommandFailed  # noqa: PLC0415  as slow to import as the commands themselves

    module = importlib.import_module(f"controller.commands.{command}")
    try:
        module.main(arguments, os.environ)
    except CommandFailed as error:
        complain(str(error))
        return FAILED
    return OK


def _demo(arguments: Sequence[str]) -> int:
    return _from_sandbox("demo", "sandbox.demo", arguments)


def _sandbox(arguments: Sequence[str]) -> int:
    return _from_sandbox("sandbox", "sandbox.commands", arguments)


def _from_sandbox(command: str, module: str, arguments: Sequence[str]) -> int:
    """Hand over to `module.main(arguments)`. By name: this package must work without the sandbox beside it."""
    try:
        entry: Callable[[Sequence[str]], int] = importlib.import_module(module).main
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in SANDBOX_PARTS:
            raise
        complain(f"{command} needs {error.name}, which is not installed here: pip install 'vmherd[sandbox]'")
        return FAILED
    return entry(arguments)


def _version(arguments: Sequence[str]) -> int:
    if arguments:
        raise UsageError(f"version: expected nothing after it, not {shown(arguments[0])}")
    print(f"vmherd {version()} (Python {sys.version.split()[0]})")
    return OK


COMMANDS: Mapping[str, Command] = {
    "run": Command("reconcile the replica sets and pools of a cluster, until SIGTERM", _run),
    "takeover": Command("have KubeVirt's own loops for both kinds rest; --undo hands back", _takeover),
    "cleanup": Command("take our finalizers off pools and VMs, after the controller is gone", _cleanup),
    "expose": Command("put a Service in front of the VMs of a replica set or pool", _expose),
    "demo": Command("watch a replica set and a pool come up, on a control plane of your own", _demo),
    "sandbox": Command("start and stop such a control plane: up, down", _sandbox),
    "version": Command("print the version", _version),
}
