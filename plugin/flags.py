"""The flags of all commands, with the names and the meaning of kubectl's flags, and the class of commands."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import click
from msgspec import Struct

from controller.config.options import chosen, write_sections
from controller.config.types import duration

NONE, CLIENT, SERVER = "none", "client", "server"
JSON, YAML, NAME, WIDE = "json", "yaml", "name", "wide"
FOR_PROGRAMS: Final = (JSON, YAML)
FIELD_MANAGER: Final = "kubectl-vmherd"


class Flags(Struct, frozen=True, kw_only=True):
    kubeconfig: str = ""
    context: str = ""
    cluster: str = ""
    user: str = ""
    as_user: str = ""
    as_group: tuple[str, ...] = ()
    token: str = ""
    server: str = ""
    request_timeout_s: float = 0.0
    namespace: str = ""
    all_namespaces: bool = False
    selector: str = ""
    output: str = ""
    dry_run: str = NONE
    field_manager: str = FIELD_MANAGER

    @property
    def dry_run_suffix(self) -> str:
        """The end of the line about a change, such as ` (dry run)`. kubectl prints the same text."""
        return {CLIENT: " (dry run)", SERVER: " (server dry run)"}.get(self.dry_run, "")


def _flag(*names: str, help: str, **more: Any) -> click.Option:
    return click.Option(names, help=help, **more)


CONNECTION: Final = (
    _flag("-n", "--namespace", default="", help="the namespace of the objects; default: that of the context"),
    _flag("--kubeconfig", default="", help="the kubeconfig to use"),
    _flag("--context", default="", help="the context of the kubeconfig to use"),
    _flag("--cluster", default="", help="the cluster of the kubeconfig to use"),
    _flag("--user", default="", help="the user of the kubeconfig to use"),
    _flag("--as", "as_user", default="", help="the user to impersonate"),
    _flag("--as-group", multiple=True, help="a group to impersonate; can be repeated"),
    _flag("--token", default="", help="a bearer token, instead of the credentials of the kubeconfig"),
    _flag("-s", "--server", default="", help="the address of the API server"),
    _flag(
        "--request-timeout",
        "request_timeout_s",
        default="30s",
        show_default=True,
        type=duration(),
        help="the longest time of one request, such as 5s; 0 means no limit",
    ),
)
ALL_NAMESPACES: Final = _flag(
    "-A", "--all-namespaces/--no-all-namespaces", default=False, help="show the objects of all namespaces"
)
SELECTOR: Final = _flag("-l", "--selector", default="", help="a label selector, such as app=web")
FIELD_MANAGER_FLAG: Final = _flag(
    "--field-manager", default=FIELD_MANAGER, show_default=True, help="the name of the writer in managedFields"
)
DRY_RUN: Final = _flag(
    "--dry-run",
    type=click.Choice((NONE, SERVER, CLIENT)),
    default=NONE,
    show_default=True,
    is_flag=False,
    flag_value=CLIENT,
    help="client: only print the change; server: let the API server check it, too",
)
WRITES: Final = (DRY_RUN, FIELD_MANAGER_FLAG)


def output(*formats: str) -> click.Option:
    return _flag("-o", "--output", type=click.Choice(formats), default=None, help="the format of the output")


class Verb(click.Command):
    """A command. Its own flags come first, and the flags of the connection follow.

    As in kubectl, a switch also has the forms `--watch=true` and `--watch=false`.
    """

    def __init__(self, *, own: Sequence[click.Option] = (), params: Sequence[click.Parameter], **more: Any) -> None:
        super().__init__(params=[*params, *own, *CONNECTION], **more)
        self.own = own

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [self._plain(arg) for arg in args])

    def _plain(self, arg: str) -> str:
        name, equals, value = arg.partition("=")
        if not equals or value not in ("true", "false"):
            return arg
        for option in self.own:
            if option.secondary_opts and name in option.opts:
                return name if value == "true" else option.secondary_opts[0]
        return arg

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections = {"Flags": self.own, "Flags of kubectl": CONNECTION, "Other": (self.get_help_option(ctx),)}
        write_sections(sections, ctx, formatter)


def given(ctx: click.Context, options: Iterable[click.Option]) -> dict[str, Any]:
    names = {option.name for option in options}
    return {name: value for name, value in chosen(ctx).items() if name in names}


def flags_of(values: Mapping[str, Any]) -> Flags:
    known = {name: values[name] for name in Flags.__struct_fields__ if values.get(name) is not None}
    return Flags(**known)
