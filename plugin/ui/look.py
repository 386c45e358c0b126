"""Reads what a page shows, with the user's own rights. Each failure is one line on the page."""

import asyncio
from collections.abc import Mapping
from typing import Any

import click
import msgspec
from msgspec import Struct

from controller.events.event import EVENTS
from controller.kubevirt.resources import CONTROLLER_REVISIONS, VMIS, VMS
from controller.replicas.history import read_history
from controller.runtime.reconciler import API_WARNING
from informers.errors import ApiError, Forbidden, is_transient
from informers.http.client import ConfigurationError
from informers.informer import SharedInformer
from informers.resource import Resource
from plugin.commands.listing import read_fleet
from plugin.commands.why import explain, warnings_in
from plugin.connection import Session, describe
from plugin.other_writer import leader_in, warning_about_status
from plugin.reading import Reader, Target
from plugin.subjects import EVERY_TYPE, parse_subjects
from plugin.ui.html import Markup
from plugin.ui.pages import Event, Top, error_page, fleet_page, last_of, object_page
from plugin.views.reasons import LEADER_UNKNOWN, Leader

RETRY_S = 2.0


class Changes:
    def __init__(self) -> None:
        self.next = asyncio.Event()

    def note(self, _: object = None) -> None:
        self.next.set()
        self.next = asyncio.Event()


async def watch(session: Session, changes: Changes) -> None:
    """Note each change until the task is cancelled. A broken watch is opened again, later and later."""
    resources: list[Resource[Any]] = []
    while not resources:
        reader = Reader(session, session.scope)
        try:
            resources = [await reader.resource(each.kind, each.group) for each in EVERY_TYPE]
        except (ApiError, ConfigurationError):
            await asyncio.sleep(RETRY_S)
    async with asyncio.TaskGroup() as group:
        for resource in (*resources, VMS, VMIS, CONTROLLER_REVISIONS, EVENTS):
            informer: SharedInformer[Any] = SharedInformer(resource, session, namespaces=(session.scope,))
            informer.add_handler(changes.note)
            group.create_task(informer.run())


MOST_EVENTS = 20


class Look(Struct, frozen=True):
    """The main part of a page. `is_error` is True if it shows an error, which may soon be over."""

    main: Markup
    is_error: bool = False


async def look_at(session: Session, root: str, place: Mapping[str, str]) -> Look:
    """Return one object, or all if `place` is empty. Raise an ApiError that may end by itself."""
    try:
        return Look(await (_object(session, place) if place else _fleet(session, root)))
    except (ApiError, ConfigurationError, click.ClickException, msgspec.DecodeError) as error:
        if isinstance(error, ApiError) and is_transient(error):
            raise
        line = error.message if isinstance(error, click.ClickException) else describe(error)
        return Look(error_page(line), is_error=True)


def name_of(leader: Leader | None) -> str:
    """Return the name of the leader without the time of its renewal. The page would change every few seconds."""
    return LEADER_UNKNOWN if leader is None else leader.name


async def _fleet(session: Session, root: str) -> Markup:
    reader = Reader(session, session.scope, once=True)
    situations, warning = await read_fleet(session, reader, EVERY_TYPE, "problem")
    if not situations and reader.missing:
        raise reader.refusal()
    if not situations:
        await reader.check_served(EVERY_TYPE)
    leader = name_of(await leader_in(reader))
    return fleet_page(root, session.scope, situations, Top(reader.missing.values(), warning, leader))


async def _object(session: Session, place: Mapping[str, str]) -> Markup:
    reader = Reader(session, place["namespace"], once=True)
    target = await reader.target(*parse_subjects([f"{place['type']}/{place['name']}"]))
    leader = await leader_in(reader)
    events = await _events(session, target, reader.missing)
    warned = warnings_in([each for each in events if each.get("reason") == API_WARNING])
    flags = f" -n {target.key.namespace}"
    situation, reasons = await explain(session, reader, target, leader, warned=warned, flags=flags)
    # A controller at work renews its lease every few seconds. The page would change each time.
    at_the_top = LEADER_UNKNOWN if leader is None else leader.text if leader.is_alive else ""
    shown = [each for each in reasons if each.text != at_the_top]
    latest = sorted(events, key=last_of, reverse=True)[:MOST_EVENTS]
    warning = await warning_about_status(session, reader, [target])
    top = Top(reader.missing.values(), warning, name_of(leader))
    return object_page(situation, shown, latest, top, read_history(target.owner.metadata))


async def _events(session: Session, target: Target, missing: dict[str, str]) -> list[Event]:
    params = {"fieldSelector": f"involvedObject.uid={target.owner.metadata.uid}"}
    try:
        answer = await session.request("GET", EVENTS.path(target.key.namespace), params=params)
    except Forbidden as error:
        missing[EVENTS.name] = str(error)
        return []
    return list(msgspec.json.decode(answer)["items"] or ())
