"""Watches the cluster, and says when something has changed. The pages then read what they show."""

import asyncio
from typing import Any

from controller.events.event import EVENTS
from controller.kubevirt.resources import CONTROLLER_REVISIONS, VMIS, VMS
from informers.errors import ApiError
from informers.http.client import ConfigurationError
from informers.informer import SharedInformer
from informers.resource import Resource
from plugin.connection import Session
from plugin.reading import Reader
from plugin.subjects import EVERY_TYPE

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
