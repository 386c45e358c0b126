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
from plugin.verbs import VERBS


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


plugin.add_command(rollout)
for verb in VERBS.values():
    *group, name = verb.name.split()
    (rollout if group else plugin).add_command(Lazy(name, f"plugin.commands.{verb.module}", verb.help))
for name, command in controller_commands.commands.items():
    if name not in plugin.commands:
        plugin.add_command(command)
