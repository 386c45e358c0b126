"""The warnings of the API server about the controller's writes, from the Events of an object."""

from datetime import datetime

import msgspec

from controller.events.event import EVENTS
from controller.runtime.reconciler import API_WARNING
from informers.errors import Forbidden
from plugin import clock
from plugin.connection import Session
from plugin.views.tables import age

LISTED = 3


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
    for each in msgspec.json.decode(answer)["items"] or ():
        last = each.get("lastTimestamp")
        text = f"{each.get('message', '')} ({age(last and datetime.fromisoformat(last), clock.now())} ago)"
        found.setdefault(each["involvedObject"].get("uid", ""), []).append(text)
    return {uid: texts[-LISTED:] for uid, texts in found.items()}
