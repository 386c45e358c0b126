"""The flags of all commands, with the names and the meaning of kubectl's flags, and the class of commands."""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from itertools import dropwhile
from shlex import join, quote
from typing import Any, Final

import click
from msgspec import Struct

from controller.config.options import chosen, write_sections
from controller.config.types import ANY_NAMESPACE, duration

NONE, CLIENT, SERVER = "none", "client", "server"
JSON, YAML, NAME, WIDE = "json", "yaml", "name", "wide"
FOR_PROGRAMS: Final = (JSON, YAML)
FIELD_MANAGER: Final = "kubectl-vmherd"


class Flags(Struct, frozen=True, kw_only=True):
    """`overrides` are the flags that replace values of the kubeconfig, by the names of `load_credentials`."""

    kubeconfig: str = ""
    overrides: Mapping[str, Any] = {}
    request_timeout_s: float = 0.0
    namespace: str = ""
    all_namespaces: bool = False
    selector: str = ""
    every: bool = False
    no_headers: bool = False
    output: str = ""
    dry_run: str = NONE
    field_manager: str = FIELD_MANAGER

    @property
    def is_text(self) -> bool:
        return self.output in ("", WIDE)

    @property
    def dry_run_suffix(self) -> str:
        """The end of the line about a change, such as ` (dry run)`. kubectl prints the same text."""
        return {CLIENT: " (dry run)", SERVER: " (server dry run)"}.get(self.dry_run, "")


def _flag(*names: str, help: str, **more: Any) -> click.Option:
    return click.Option(names, help=help, **more)


def repeated(*names: str, help: str, metavar: str | None = None) -> click.Option:
    return _flag(*names, help=help, multiple=True, metavar=metavar)


def switch(name: str, help: str, *, default: bool = False, short: str = "") -> click.Option:
    return _flag(*([short] if short else []), f"--{name}/--no-{name}", default=default, help=help)


_TEXTS: Final[Mapping[tuple[str, ...], str]] = {
    ("--kubeconfig",): "the kubeconfig to use",
    ("--context",): "the context of the kubeconfig to use",
    ("--cluster",): "the cluster of the kubeconfig to use",
    ("--user",): "the user of the kubeconfig to use",
    ("-s", "--server"): "the address of the API server",
    ("--tls-server-name",): "the name in the certificate of the API server, if it is not that of the address",
    ("--certificate-authority",): "the file with the certificate authority of the API server",
    ("--client-certificate",): "the file with the certificate of the user",
    ("--client-key",): "the file with the key of the certificate",
    ("--token",): "a bearer token, instead of the credentials of the kubeconfig",
    ("--as", "as_user"): "the user to impersonate",
    ("--as-uid",): "the UID to impersonate",
}
_OF_OBJECTS: Final = "the namespace of the objects; default: that of the context"
CONNECTION: Final = (
    _flag("-n", "--namespace", default="", type=ANY_NAMESPACE, help=_OF_OBJECTS),
    *(_flag(*names, default="", help=help) for names, help in _TEXTS.items()),
    repeated("--as-group", "as_groups", help="a group to impersonate; can be repeated"),
    switch("insecure-skip-tls-verify", "trust every certificate of the API server: the connection is not secure"),
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
ALL: Final = _flag("--all", "every", is_flag=True, help="all objects of the type in the namespace")
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


NO_HEADERS: Final = _flag("--no-headers", is_flag=True, help="print no line with the names of the columns")


class Format(click.Choice[str]):
    """A format of the output. For a format that only kubectl has, the message has the command of kubectl."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            self.fail(error.message.rstrip(".") + in_kubectl(ctx, f"-o {quote(value)}"), param, ctx)


def output(*formats: str) -> click.Option:
    return _flag("-o", "--output", type=Format(formats), default=None, help="the format of the output")


SHOWN: Final = output(JSON, YAML, NAME, WIDE)


def in_kubectl(ctx: click.Context | None, words: str) -> str:
    """Return the end of a message: the command of kubectl that knows these words, or "" if there is none."""
    line = getattr(ctx and ctx.command, "kubectl", "")
    has_words = line and not (line == "diff" and words.startswith("-o"))
    return f"; kubectl has more: kubectl {line} {words}" if has_words else ""


class Verb(click.Command):
    """A command. `own` are its flags without those of the connection. `kubectl` is the command for what it lacks.

    As in kubectl, a switch also has the forms `--watch=true` and `--watch=false`.
    """

    def __init__(
        self,
        *,
        own: Sequence[click.Option] = (),
        example: str = "",
        kubectl: str = "",
        params: Sequence[click.Parameter],
        **more: Any,
    ) -> None:
        super().__init__(params=[*params, *own, *CONNECTION], **more)
        self.own, self.example, self.kubectl = own, example, kubectl

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, [self._plain(arg) for arg in args])
        except click.NoSuchOption as error:
            name = error.option_name
            after = dropwhile(lambda arg: not arg.startswith(name), args)
            # The line has a type already, and kubectl takes no TYPE/NAME beside it.
            words = in_kubectl(ctx, join(arg for arg in after if not re.fullmatch(r"[a-z.]+/[\w.-]+", arg)))
            if not words or get_close_matches(name, error.possibilities or (), cutoff=0.8):
                raise
            raise click.NoSuchOption(name, error.message.rstrip(".") + words, ctx=ctx) from error

    def _plain(self, arg: str) -> str:
        name, equals, value = arg.partition("=")
        if not equals or value not in ("true", "false"):
            return arg
        for option in (*self.own, *CONNECTION):
            if option.secondary_opts and name in option.opts:
                return name if value == "true" else option.secondary_opts[0]
        return arg

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_sections({"Flags": self.own, "Other": (self.get_help_option(ctx),)}, ctx, formatter)
        with formatter.section("Example"):
            formatter.write(f"  {ctx.command_path} {self.example}\n")
        formatter.write("\nkubectl vmherd options prints the flags of the connection to the cluster, such as -n.\n")


def given(ctx: click.Context, options: Iterable[click.Option]) -> dict[str, Any]:
    names = {option.name for option in options}
    return {name: value for name, value in chosen(ctx).items() if name in names}


def flags_of(values: Mapping[str, Any]) -> Flags:
    known = {name: values[name] for name in Flags.__struct_fields__ if values.get(name) is not None}
    overrides = {each.name: values[each.name] for each in CONNECTION if values.get(each.name)}
    return Flags(**known, overrides={name: overrides[name] for name in overrides.keys() - known.keys()})
