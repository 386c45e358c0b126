"""The VMs and VMIs that a command line names: `vm/web-3`, `vmi/herd7x2k4`, or only the name."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import click
import msgspec
from msgspec import Struct

from controller.apimachinery.names import is_subdomain
from controller.kubevirt.resources import VMIS, VMS
from informers.errors import NotFound
from informers.resource import Resource
from plugin.connection import Failed, Session
from plugin.subjects import MEMBER_TYPES, Subject, did_you_mean, parse_subjects
from plugin.views.membership import Item, owner_of
from plugin.views.situation import Member, Situation


class MemberName(Struct, frozen=True):
    """The name of a VM or VMI. Without a type, the name means the VM. If no VM has this name, it means the VMI."""

    name: str
    resource: Resource[Any] | None = None


def parse_members(arguments: Sequence[str]) -> tuple[MemberName, ...]:
    """Return the named VMs and VMIs. Raise click.UsageError if an argument is wrong."""
    if not arguments:
        raise click.UsageError("name a VM, such as vm/web-3")
    return tuple(_member(argument) for argument in arguments)


def _member(argument: str) -> MemberName:
    type_, slash, name = argument.partition("/")
    name = name if slash else type_
    if not is_subdomain(name):
        raise click.UsageError(f"{name!r} is not the name of an object")
    if not slash:
        return MemberName(name)
    resource = MEMBER_TYPES.get(type_.lower().partition(".")[0])
    if resource is None:
        hint = did_you_mean(type_, MEMBER_TYPES) or "; name a VM, such as vm/web-3"
        raise click.UsageError(f"there is no type {type_!r} here{hint}")
    return MemberName(name, resource)


Named: TypeAlias = tuple[Subject | MemberName, ...]


def parse_shown(arguments: Sequence[str]) -> Named:
    """Return the named objects: sets, pools, and VMs or VMIs such as `vm/web-1`. Raise click.UsageError."""
    first, *others = [*arguments, ""]
    if _is_member_type(first):
        return parse_members([f"{first}/{name}" for name in others[:-1]])
    members = [each for each in arguments if "/" in each and _is_member_type(each.partition("/")[0])]
    owners = [each for each in arguments if each not in members]
    return (*(parse_subjects(owners) if owners or not members else ()), *(_member(each) for each in members))


def _is_member_type(text: str) -> bool:
    return text.lower().partition(".")[0] in MEMBER_TYPES


def subject_of(item: Item) -> Subject:
    """Return the pool or set that a VM or VMI belongs to. Raise Refused if there is none."""
    kind, owner = owner_of(item)
    return Subject(kind, owner.api_version.partition("/")[0], owner.name)


async def owners_of(session: Session, named: Named) -> tuple[tuple[Subject, ...], Mapping[str, set[str]]]:
    """Return the sets and pools of these objects, and the members that were named, by the path of their owner."""
    subjects: dict[Subject, None] = {}
    members: dict[str, set[str]] = {}
    for each in named:
        if isinstance(each, Subject):
            subjects[each] = None
            continue
        owner = subject_of(await read_member(session, each))
        subjects[owner] = None
        members.setdefault(f"{owner.kind.singular}.{owner.group}/{owner.name}", set()).add(each.name)
    return tuple(subjects), members


def named_members(situation: Situation, named: Mapping[str, set[str]], *, only_sick: bool = False) -> Sequence[Member]:
    names = named.get(situation.identity.path, ())
    members = (each for each in situation.members if each.is_sick or not only_sick)
    return tuple(each for each in members if each.name in names or not names)


async def read_member(session: Session, member: MemberName) -> Item:
    """Read a VM or VMI. Raise Failed if no VM or VMI has this name. Raise ApiError if a request fails."""
    resources = (VMS, VMIS) if member.resource is None else (member.resource,)
    for resource in resources:
        try:
            answer = await session.request("GET", resource.path(session.namespace, member.name))
        except NotFound:
            continue
        return Item(resource, msgspec.json.decode(answer))
    names = [name for resource in resources for name in await session.names_of(resource, session.namespace)]
    found = f'{resources[0].name} "{member.name}" not found{did_you_mean(member.name, names)}'
    raise Failed(f"Error from server (NotFound): {found}")
