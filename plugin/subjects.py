"""The objects that a command line names: `vmpool/web`, `vmpool web api`, or only `vmpool` for all pools."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import click
from msgspec import Struct

from controller.apimachinery.names import is_subdomain
from controller.kinds import KINDS, Kind, types_of
from controller.kubevirt.resources import VMIS, VMS
from informers.resource import Resource
from plugin.flags import Flags

TYPES: Final = types_of(KINDS)
SUGGESTED: Final = tuple(kind.short_names[0] for kind in KINDS)
METAVAR: Final = "TYPE/NAME"
MEMBER_TYPES: Final[Mapping[str, Resource[Any]]] = {
    **dict.fromkeys(("vm", "vms", VMS.plural, VMS.kind.lower()), VMS),
    **dict.fromkeys(("vmi", "vmis", VMIS.plural, VMIS.kind.lower()), VMIS),
}


class Subject(Struct, frozen=True):
    """One object, or all objects of a type if `name` is ""."""

    kind: Kind[Any]
    group: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind.short_names[0]}/{self.name}"

    @property
    def plural(self) -> str:
        return f"{self.kind.plural}.{self.group}"


EVERY_TYPE: Final = tuple(Subject(kind, group) for kind in KINDS for group in (kind.group, kind.own_group))


def parse_subjects(arguments: Sequence[str]) -> tuple[Subject, ...]:
    if not arguments:
        raise click.UsageError(f"name an object, such as {SUGGESTED[-1]}/web")
    if any("/" in argument for argument in arguments):
        return tuple(_pair(argument) for argument in arguments)
    types, names = [*map(type_named, arguments[0].split(","))], [_name(name) for name in arguments[1:]]
    return tuple(Subject(kind, group, name) for kind, group in types for name in names or ("",))


def check_names(subjects: Iterable[Any], flags: Flags, *, needs_all: bool) -> None:
    """Raise click.UsageError if flags contradict a name, or if a name is forgotten: with `needs_all`, a command changes
    all objects of a type only if a user says so.
    """
    for subject in subjects:
        given = {"-A": flags.all_namespaces, "-l": flags.selector, "--all": flags.every}
        wrong = [flag for flag, value in given.items() if value]
        if subject.name and wrong:
            raise click.UsageError(f"a name and {wrong[0]} contradict each other: leave out one of the two")
        if needs_all and not (subject.name or wrong):
            every = f"name a {subject.kind.noun}, such as {subject.kind.short_names[0]}/web, or say -l or --all"
            raise click.UsageError(f"no name was specified: {every}")


def _pair(argument: str) -> Subject:
    type_, slash, name = argument.partition("/")
    if not slash or not name:
        raise click.UsageError(f"{argument!r} is invalid; with TYPE/NAME, each argument has this form")
    kind, group = type_named(type_)
    return Subject(kind, group, _name(name))


def type_named(text: str) -> tuple[Kind[Any], str]:
    """Return the kind and the API group of a type such as `vmpool` or `virtualmachinepools.pool.kubevirt.io`."""
    name, _, group = text.lower().partition(".")
    if name not in TYPES:
        hint = did_you_mean(name, TYPES) or f"; name an object as TYPE/NAME, such as {SUGGESTED[-1]}/web"
        hint = f" here; name the pool or set of the VM, such as {SUGGESTED[-1]}/web" if name in MEMBER_TYPES else hint
        raise click.UsageError(f"there is no type {text!r}{hint}")
    kind, usual = TYPES[name]
    # kubectl also accepts a version between the type and the group.
    version, _, rest = group.partition(".")
    group = rest if version in (kind.version, *kind.other_versions) and rest else group
    return kind, group or usual


def _name(name: str) -> str:
    if is_subdomain(name):
        return name
    raise click.UsageError(f"{name!r} is not the name of an object")


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """Return `; did you mean "web"?`, or "" if no known name is similar."""
    close = difflib.get_close_matches(wrong, list(known), n=1, cutoff=0.65)
    return f'; did you mean "{close[0]}"?' if close else ""
