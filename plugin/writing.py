"""Writes the changes of commands, and prints what was changed in the words of kubectl."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from informers.meta import ObjectKey
from informers.objects import PatchType
from informers.resource import Resource
from plugin.connection import Session
from plugin.flags import CLIENT, JSON, NAME, SERVER, YAML, Flags
from plugin.printing import print_value
from plugin.views.edits import Document, Edit, edited, json_patch


class Writable(Protocol):
    """An object with all its fields, for a command that changes the object."""

    @property
    def resource(self) -> Resource[Any]: ...

    @property
    def key(self) -> ObjectKey: ...

    @property
    def path(self) -> str: ...

    @property
    def document(self) -> Document: ...


async def write(session: Session, target: Writable, edits: Sequence[Edit], done: str) -> None:
    """Change an object and print `done`, for example `restarted`. With --dry-run, change nothing. Raise ApiError."""
    document = await changed(session, target, edits)
    report(session.flags, target.path, document, done)


async def changed(session: Session, target: Writable, edits: Sequence[Edit]) -> Document:
    """Send the changes of an object, and return the object after them. Raise ApiError."""
    flags = session.flags
    if flags.dry_run == CLIENT or not edits:
        return edited(target.document, edits)
    body = json_patch(target.document, edits)
    path = target.resource.path(*target.key)
    answer = await session.request("PATCH", path, params=params_of(flags), body=body, content_type=PatchType.JSON)
    document: Document = msgspec.json.decode(answer)
    return document


def params_of(flags: Flags) -> dict[str, str]:
    """Return the query parameters of a write: the field manager, and the server's dry run if it is asked for."""
    return {"fieldManager": flags.field_manager, **({"dryRun": "All"} if flags.dry_run == SERVER else {})}


def report(flags: Flags, path: str, document: object, done: str) -> None:
    """Print the line about a change, or the changed object with -o."""
    if flags.output == NAME:
        print(path, flush=True)
    elif flags.output in (JSON, YAML):
        print_value(document, flags.output)
    else:
        print(f"{path} {done}{flags.dry_run_suffix}", flush=True)
