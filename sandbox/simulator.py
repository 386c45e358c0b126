"""Plays KubeVirt's part on a cluster without virtual machines: the loop around the pure behaviors.

    python -m sandbox.simulator --kubeconfig FILE

Every kind that is simulated is a row in `_parts`: a resource and the behavior that decides an object's next step. Each
part watches its resource, asks the behavior when an object changes or is due, and writes what it says. All that is
known of an object is in the cluster, so a simulator may be stopped, killed and started again at any time. It outlives
the API server: what could not be written is tried again, and the watches go on by themselves.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

import structlog

from informers.client import MERGE_PATCH, ApiClient, ConfigurationError, load_credentials, open_client
from informers.errors import ApiError, Conflict, NotFound, TransportError
from informers.informer import SharedInformer
from informers.meta import KubeObject, ObjectKey
from informers.ratelimit import ItemBackoff
from informers.resource import Resource
from informers.store import ALL_NAMESPACES, Added, Change, Removed, Updated
from informers.workqueue import WorkQueue
from sandbox.behavior import next_step
from sandbox.step import NextStep, Patch
from sandbox.vmis import VMIS

log = structlog.get_logger()

T = TypeVar("T", bound=KubeObject)

USER_AGENT = "vmherd-simulator"
WORKERS = 16
"""Writes under way at once, for each kind. More would only take the API server's time from whoever is being tested."""

RETRY_FROM_S, RETRY_TO_S = 0.2, 5.0


async def run(
    kubeconfig: str | os.PathLike[str], *, namespaces: Iterable[str] = (ALL_NAMESPACES,), workers: int = WORKERS
) -> None:
    """Simulate what is in these namespaces, until cancelled.

    Raises ConfigurationError when the kubeconfig cannot be used; a server that does not answer is waited for.
    """
    credentials = await load_credentials(os.fspath(kubeconfig))
    async with (
        open_client(credentials, user_agent=USER_AGENT, max_inflight=None) as client,
        asyncio.TaskGroup() as group,
    ):
        for part in _parts(client, tuple(namespaces)):
            group.create_task(part.run(workers), name=f"simulator-{part.name}")


def _parts(client: ApiClient, namespaces: tuple[str, ...]) -> tuple[Part[Any], ...]:
    return (Part(VMIS, next_step, client, namespaces),)


class Part(Generic[T]):
    """Simulates the objects of one kind."""

    def __init__(
        self, resource: Resource[T], behavior: NextStep[T], client: ApiClient, namespaces: tuple[str, ...]
    ) -> None:
        self.name = resource.plural
        self._resource = resource
        self._behavior = behavior
        self._client = client
        self._informer = SharedInformer(resource, client, namespaces=namespaces, chance=_no_spread)
        self._informer.add_handler(self._note)
        self._queue: WorkQueue[ObjectKey] = WorkQueue(
            self.name, limiter=ItemBackoff(initial_s=RETRY_FROM_S, maximum_s=RETRY_TO_S)
        )
        self._first_seen: dict[ObjectKey, datetime] = {}
        """Of the objects in the store. A restart moves it, which behaviors allow for."""

        self._told: set[str] = set()
        """The flaws that were logged. A template's mistake is in each VMI made from it, and worth one line."""

    async def run(self, workers: int) -> None:
        """Follow and act, for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._informer.run(), name=f"simulator-{self.name}-informer")
            for number in range(workers):
                group.create_task(self._work(), name=f"simulator-{self.name}-{number}")

    def _note(self, change: Change[T]) -> None:
        match change:
            case Added(new=new):
                self._first_seen[new.metadata.key] = datetime.now(UTC)
                self._queue.add(new.metadata.key)
            case Updated(new=new):
                self._queue.add(new.metadata.key)
            case Removed(last_known=gone):
                self._first_seen.pop(gone.metadata.key, None)
                self._queue.forget(gone.metadata.key)

    async def _work(self) -> None:
        async for key in self._queue:
            try:
                await self._advance(key)
                self._queue.forget(key)
            except Exception as error:
                self._tell_failure(key, error)
                self._queue.add_rate_limited(key)
            finally:
                self._queue.done(key)

    async def _advance(self, key: ObjectKey) -> None:
        """Take one object one step further."""
        obj = self._informer.store.get(key)
        if obj is None:
            return
        now = datetime.now(UTC)
        step = self._behavior(obj, now, self._first_seen.get(key, now))
        for flaw in step.flaws:
            self._tell_flaw(key, flaw)
        if step.write is not None:
            await self._write(key, step.write)
        elif step.after_s is not None:
            self._queue.add_after(key, step.after_s)

    async def _write(self, key: ObjectKey, patch: Patch) -> None:
        """Send the patch. An object that has gone meanwhile needs none, whatever else has its name by now."""
        with suppress(NotFound):
            await self._client.patch(
                self._resource, key, patch.body, content_type=MERGE_PATCH, subresource=patch.subresource
            )
            log.debug("simulated", resource=self.name, namespace=key.namespace, name=key.name)

    def _tell_flaw(self, key: ObjectKey, flaw: str) -> None:
        if flaw not in self._told:
            self._told.add(flaw)
            log.warning("annotation ignored", resource=self.name, namespace=key.namespace, name=key.name, why=flaw)

    def _tell_failure(self, key: ObjectKey, error: Exception) -> None:
        """Say what went wrong, once for a row of failures; that the server does not answer, the informer says."""
        if self._queue.retries(key) or isinstance(error, Conflict | TransportError):
            return
        line = log.bind(resource=self.name, namespace=key.namespace, name=key.name)
        if isinstance(error, ApiError):
            line.warning("a simulated change was refused", why=str(error))
        else:
            line.error("the simulator cannot work on an object", exc_info=error)


def _no_spread() -> float:
    """For the informer's delays, which spread many clients of one server: alone on loopback, each can be the least."""
    return 0.0


def main() -> None:
    """Run by itself, until Ctrl-C or SIGTERM ends the process."""
    # Logging is the program's to set up; as a part of another program, the simulator has that one's.
    from controller.logs import configure  # noqa: PLC0415

    parser = argparse.ArgumentParser(prog="python -m sandbox.simulator", description="Simulate KubeVirt's VMs.")
    parser.add_argument("--kubeconfig", required=True, help="the cluster to simulate them on, and who to be there")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    arguments = parser.parse_args()
    configure(arguments.log_level, "auto")
    try:
        asyncio.run(run(arguments.kubeconfig))
    except ConfigurationError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
