"""The command `kubectl vmherd` with its subcommands. The exit codes are:

    0  done          1  failed or timed out          2  wrong flags or arguments          130  Ctrl-C

The module of a command is imported when the command is called, so help and completion are fast. The commands of
`vmherd` itself, such as `run`, are also commands of the plugin.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from controller.cli import OK, SETTINGS, VERSION_OPTION, LazyCommand, LazyGroup, run_command
from controller.cli import vmherd as controller_commands
from plugin.flags import CONNECTION
from plugin.printing import note


@contextmanager
def without_rich() -> Iterator[None]:
    """Hide the package rich from structlog, which would import it for tracebacks. This would slow down each command."""
    if "rich" in sys.modules or "structlog" in sys.modules:
        yield
        return
    sys.modules["rich"] = None  # type: ignore[assignment]  # so `import rich` raises ImportError
    try:
        yield
    finally:
        del sys.modules["rich"]


PROGRAM = "kubectl vmherd"


def main(argv: Sequence[str] | None = None) -> int:
    arguments = verb_first(list(sys.argv[1:] if argv is None else argv))
    try:
        return run_command(plugin, arguments, PROGRAM, _complain)
    except BrokenPipeError:
        # The reader of the output, such as `head`, has ended. Python must not write the rest at its exit.
        sys.stdout = None
        return OK


def verb_first(arguments: list[str]) -> list[str]:
    """Return the arguments with connection flags in front of the command moved behind it. kubectl allows them there."""
    takes_value = {name for option in CONNECTION for name in option.opts}
    leading = []
    while arguments and arguments[0].partition("=")[0] in takes_value:
        size = 1 if "=" in arguments[0] else 2
        leading += arguments[:size]
        arguments = arguments[size:]
    return arguments + leading if arguments else leading


def _complain(line: str) -> None:
    marked = line.startswith(("error: ", "Error from server"))
    note(line if marked else f"error: {line}")


class Lazy(LazyCommand):
    def load(self) -> click.Command:
        with without_rich():
            return super().load()


@click.group(cls=LazyGroup, context_settings=SETTINGS)
@VERSION_OPTION
def plugin() -> None:
    """See and steer replica sets and pools of virtual machines."""


@click.group("rollout", cls=LazyGroup, short_help="status, history, undo, restart, pause and resume of a rollout")
def rollout() -> None:
    """Manage the rollout of a new template."""


for lazy in (
    Lazy("status", "plugin.commands.rollout_status", "show a rollout until it is finished"),
    Lazy("history", "plugin.commands.rollout_history:history", "list the templates that an object can return to"),
    Lazy("undo", "plugin.commands.rollout_history:undo", "return an object to an earlier template"),
    Lazy("restart", "plugin.commands.steering:restart", "restart all VMs, as fast as the update limits allow"),
    Lazy("pause", "plugin.commands.steering:pause", "stop updates, and also scaling and healing"),
    Lazy("resume", "plugin.commands.steering:resume", "end a pause"),
):
    rollout.add_command(lazy)

plugin.add_command(rollout)
for lazy in (
    Lazy("list", "plugin.commands.listing", "list replica sets and pools with their state"),
    Lazy("tree", "plugin.commands.listing:tree", "show an object with its VMs, and why each is as it is"),
    Lazy("why", "plugin.commands.why", "say why an object is not as its spec asks"),
    Lazy("ui", "plugin.commands.ui", "show all replica sets and pools in the browser, live"),
    Lazy("plan", "plugin.commands.plan", "print what the controller would write next"),
    Lazy("scale", "plugin.commands.steering:scale", "set the number of VMs; --dry-run=client names the VMs that leave"),
    Lazy("detach", "plugin.commands.membership:detach", "take VMs out of their pool or set"),
    Lazy("adopt", "plugin.commands.membership:adopt", "give VMIs to a replica set"),
    Lazy("protect", "plugin.commands.marks:protect", "keep VMs at every scale-in"),
    Lazy("unprotect", "plugin.commands.marks:unprotect", "end the protection of VMs"),
    Lazy("busy", "plugin.commands.marks:busy", "leave VMs alone until their work is done"),
    Lazy("remove", "plugin.commands.marks:remove", "mark VMs as the first to leave; --scale-in removes them now"),
    Lazy("expose", "plugin.commands.operators:expose", "create a Service for the VMs of a replica set or pool"),
    Lazy("takeover", "plugin.commands.operators:takeover", "stop KubeVirt's loops for both kinds; --undo starts them"),
    Lazy(
        "cleanup", "plugin.commands.operators:cleanup", "remove vmherd's finalizers after the controller is uninstalled"
    ),
    Lazy("version", "plugin.commands.operators:version", "print the version"),
):
    plugin.add_command(lazy)
for name, command in controller_commands.commands.items():
    if name not in plugin.commands:
        plugin.add_command(command)
