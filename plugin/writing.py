"""Asks the user, writes the changes of commands, and prints what was changed in the words of kubectl."""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from informers.objects import PatchType
from plugin.connection import Failed, Session
from plugin.flags import CLIENT, FOR_PROGRAMS, NAME, Flags
from plugin.printing import clean, note, print_value
from plugin.reading import Target
from plugin.views.edits import Document, Edit, edited, json_patch
from plugin.views.membership import Item


async def write(session: Session, target: Target | Item, edits: Sequence[Edit], done: str) -> None:
    """Change an object and print `done`, for example `restarted`. With --dry-run, change nothing. Raise ApiError."""
    document = await changed(session, target, edits)
    report(session.flags, target.path, document, done)


async def changed(session: Session, target: Target | Item, edits: Sequence[Edit]) -> Document:
    """Send the changes of an object, and return the object after them. Raise ApiError."""
    flags = session.flags
    if flags.dry_run == CLIENT or not edits:
        return edited(target.document, edits)
    body = json_patch(target.document, edits)
    answer = await session.patch(target.resource, target.key, body, content_type=PatchType.JSON)
    document: Document = msgspec.json.decode(answer)
    return document


async def write_replicas(session: Session, target: Target, replicas: int, *, is_exact: bool) -> bytes:
    """Write the number of replicas through the subresource `scale`, as kubectl does. Raise ApiError.

    If `is_exact` is True, the server refuses the write if the object has changed since it was read.
    """
    meta = target.owner.metadata
    metadata = {"uid": meta.uid, **({"resourceVersion": meta.resource_version} if is_exact else {})}
    body = msgspec.json.encode({"metadata": metadata, "spec": {"replicas": replicas}})
    return await session.patch(target.resource, target.key, body, content_type=PatchType.MERGE, subresource="scale")


def report(flags: Flags, path: str, document: object, done: str) -> None:
    if flags.output == NAME:
        print(path, flush=True)
    elif flags.output in FOR_PROGRAMS:
        print_value(document, flags.output)
    else:
        print(f"{path} {done}{flags.dry_run_suffix}", flush=True)


async def confirm(what: str, *, yes: bool) -> None:
    """`what` says what is lost. `yes` is the flag --yes. Raise Failed without consent, or if stdin is no terminal."""
    if yes:
        note(f"Warning: {what}")
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise Failed(f"error: {what}; --yes allows this")
    print(clean(f"Warning: {what}"), "Continue? [y/N] ", sep="\n", end="", file=sys.stderr, flush=True)
    if (await read_answer()).strip().lower() not in ("y", "yes"):
        raise Failed("error: nothing was changed")


async def read_answer() -> str:
    """Return a line from the terminal. Ctrl-C ends the wait."""
    loop, there = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin, there.set)
    try:
        await there.wait()
    finally:
        with suppress(OSError, ValueError):
            loop.remove_reader(sys.stdin)
    return sys.stdin.readline()
