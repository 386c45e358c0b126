"""The command `vmherd` with its subcommands. Each expected error is one line on stderr.

The exit codes are 0 for success, 1 for a failure, 2 for wrong flags or variables, and 130 after Ctrl-C. The module of a
subcommand is imported when it is called, for a fast `--help`. The container image lacks `demo` and `sandbox`.
"""

import importlib
import sys
from collections.abc import Callable, Sequence

import click
from click.exceptions import NoArgsIsHelpError

from controller.config.options import complain, describe

OK, INTERRUPTED = 0, 130

SANDBOX_PARTS = ("sandbox", "rich", "trustme", "yaml")


class LazyCommand(click.Command):
    """A command with only a name and a short help. `load` imports `module` or `module:attribute`, the real command."""

    def __init__(self, name: str, module: str, help: str) -> None:
        super().__init__(name, short_help=help)
        self.module = module

    def load(self) -> click.Command:
        """Raises ClickException if a package for the sandbox is missing."""
        try:
            module, _, attribute = self.module.partition(":")
            command: click.Command = getattr(importlib.import_module(module), attribute or "command")
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in SANDBOX_PARTS:
                raise
            raise click.ClickException(
                f"{self.name} needs {error.name}, which is not installed: pip install 'vmherd[sandbox]'"
            ) from error
        return command


class LazyGroup(click.Group):
    """A group of commands that imports a command only when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, LazyCommand) else command, rest


def main(argv: Sequence[str] | None = None) -> int:
    return run_command(vmherd, argv, "vmherd", complain)


def run_command(group: click.Group, argv: Sequence[str] | None, program: str, complain: Callable[[str], None]) -> int:
    """Run a command of the group, and return the exit code. `complain` gets each line of an error message."""
    try:
        code = group.main(argv, prog_name=program, standalone_mode=False)
    except NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        message = describe(error) if isinstance(error, click.UsageError) else error.message
        for line in message.splitlines():
            complain(line)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    return code if isinstance(code, int) else OK


def version_line() -> str:
    from controller.version import version  # noqa: PLC0415  this import is slow: it imports `importlib.metadata`

    return f"vmherd {version()} (Python {sys.version.split()[0]})"


def _print_version(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(version_line())
        ctx.exit()


SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
VERSION_OPTION = click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version."
)


@click.group(cls=LazyGroup, context_settings=SETTINGS)
@VERSION_OPTION
def vmherd() -> None:
    """A replica controller for virtual machines on Kubernetes."""


@vmherd.command("help", hidden=True)
@click.pass_context
def print_help(ctx: click.Context) -> None:
    click.echo(ctx.find_root().get_help())


for lazy in (
    LazyCommand("run", "controller.commands.run", "reconcile replica sets and pools of a cluster, until SIGTERM"),
    LazyCommand("takeover", "controller.commands.takeover", "stop KubeVirt's loops for both kinds; --undo starts them"),
    LazyCommand(
        "cleanup", "controller.commands.cleanup", "remove vmherd's finalizers after the controller is uninstalled"
    ),
    LazyCommand("conformance", "controller.commands.conformance", "check how a cluster reconciles both kinds"),
    LazyCommand("demo", "sandbox.demo.command", "watch a replica set and a pool start, on a local control plane"),
    LazyCommand("sandbox", "sandbox.commands", "start and stop a local control plane: up, down"),
):
    vmherd.add_command(lazy)


@vmherd.command("version", short_help="print the version")
def print_version() -> None:
    click.echo(version_line())
