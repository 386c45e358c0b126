"""Makes a command of the plugin from the function that does its work."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import click

from plugin.connection import carry_out
from plugin.flags import Flags, Verb, flags_of
from plugin.subjects import METAVAR, Subject, check_scope, parse_subjects
from plugin.verbs import flags_of_verb

Subjects: TypeAlias = tuple[Subject, ...]
Work: TypeAlias = Callable[..., Awaitable[None]]


def verb(name: str, help: str, **more: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """Return a decorator that makes a function the command `name`, such as `rollout status`.

    The function gets the values of all flags by name.
    """
    return click.command(name.rpartition(" ")[2], cls=Verb, own=flags_of_verb(name), help=help, **more)


def on_objects(
    name: str,
    help: str,
    *,
    metavar: str = METAVAR,
    parse: Callable[[Sequence[str]], tuple[Any, ...]] = parse_subjects,
) -> Callable[[Work], click.Command]:
    """Return a decorator that makes a function the command `name`, whose arguments name objects.

    The function gets the session, the objects that `parse` returns, and the values of the command's own flags by name.
    It may raise Failed, ApiError and Refused.
    """

    def decorate(work: Work) -> click.Command:
        @verb(name, help)
        @click.argument("arguments", nargs=-1, metavar=metavar)
        def parsed(arguments: tuple[str, ...], **values: Any) -> None:
            named, flags = parse(arguments), flags_of(values)
            check_scope(named, all_namespaces=flags.all_namespaces)
            own = {name: value for name, value in values.items() if name not in Flags.__struct_fields__}
            carry_out(flags, lambda session: work(session, named, **own))

        return parsed

    return decorate
