"""Makes a command of the plugin from the function that does its work. The docstring of the function is its help."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

import click

from plugin.connection import Session, carry_out
from plugin.flags import Flags, Verb, flags_of
from plugin.members import parse_members, read_member
from plugin.reading import Reader
from plugin.subjects import METAVAR, Subject, check_names, parse_subjects
from plugin.verbs import KUBECTL, VERBS, flags_of_verb

Subjects: TypeAlias = tuple[Subject, ...]
Work: TypeAlias = Callable[..., Awaitable[None]]
Decorator: TypeAlias = Callable[[Work], click.Command]


def verb(name: str, **more: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """Return a decorator that makes a function the command `name`, such as `rollout status`.

    The function gets the values of all flags by name.
    """
    texts = {"example": VERBS[name].example, "kubectl": KUBECTL.get(name, "")}
    return click.command(name.rpartition(" ")[2], cls=Verb, own=flags_of_verb(name), **texts, **more)


def on_objects(
    name: str, *, metavar: str = METAVAR, parse: Callable[[Sequence[str]], tuple[Any, ...]] = parse_subjects
) -> Decorator:
    """Return a decorator that makes a function the command `name`, whose arguments name objects.

    The function gets the session, the objects that `parse` returns, and the values of the command's own flags by name.
    It may raise Failed, ApiError and Refused.
    """

    def decorate(work: Work) -> click.Command:
        @verb(name, help=work.__doc__)
        @click.argument("arguments", nargs=-1, metavar=metavar)
        def parsed(arguments: tuple[str, ...], **values: Any) -> None:
            named, flags = parse(arguments), flags_of(values)
            check_names(named, flags, needs_all="every" in values)
            own = {option.name: values[option.name] for option in flags_of_verb(name)}
            own = {name: value for name, value in own.items() if name not in Flags.__struct_fields__}
            carry_out(flags, lambda session: work(session, named, **own))

        return parsed

    return decorate


def on_each(name: str) -> Decorator:
    """Return a decorator like `on_objects`. The function gets the session, a reader and one set or pool at a time.

    As in kubectl, an error about one object does not end the work on the others.
    """

    def decorate(work: Work) -> click.Command:
        async def on_all(session: Session, subjects: Subjects, **own: Any) -> None:
            reader = Reader(session, session.namespace)
            for target in await reader.some_targets(subjects, session.flags.selector):
                with session.going_on():
                    await work(session, reader, target, **own)

        on_all.__doc__ = work.__doc__
        return on_objects(name)(on_all)

    return decorate


def on_members(name: str) -> Decorator:
    """Return a decorator like `on_each`. The function gets the session and one VM or VMI at a time."""

    def decorate(work: Work) -> click.Command:
        async def on_all(session: Session, members: tuple[Any, ...], **own: Any) -> None:
            for member in dict.fromkeys(members):
                with session.going_on():
                    await work(session, await read_member(session, member), **own)

        on_all.__doc__ = work.__doc__
        return on_objects(name, metavar="VM...", parse=parse_members)(on_all)

    return decorate
