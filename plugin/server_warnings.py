"""The warnings of the API server about the controller's writes, from the Events of an object."""

from datetime import datetime

import msgspec
from msgspec import Struct

from controller.events.event import EVENTS
from controller.runtime.reconciler import API_WARNING
from informers.errors import Forbidden
from plugin import clock
from plugin.connection import Session
from plugin.views.tables import age

LISTED = 3


class _About(Struct, frozen=True):
    uid: str = ""


class _Event(Struct, frozen=True, rename="camel"):
    involved_object: _About = _About()
    message: str = ""
    last_timestamp: datetime | None = None


class _Events(Struct, frozen=True):
    items: tuple[_Event, ...] | None = None


async def server_warnings(session: Session) -> dict[str, list[str]]:
    """Return the warnings about each object by its UID, each with its age. Return nothing if the user may not read
    Events.
    """
    path, params = EVENTS.path(session.scope), {"fieldSelector": f"reason={API_WARNING}"}
    try:
        answer = await session.request("GET", path, params=params)
    except Forbidden:
        return {}
    found: dict[str, list[str]] = {}
    for each in msgspec.json.decode(answer, type=_Events).items or ():
        text = f"{each.message} ({age(each.last_timestamp, clock.now())} ago)"
        found.setdefault(each.involved_object.uid, []).append(text)
    return {uid: texts[-LISTED:] for uid, texts in found.items()}
