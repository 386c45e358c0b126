"""What the commands have in common that do one thing and end: settings, a connection, failures in one line, the lease.

Such a command is started by a person, with that person's permissions, and asks the API server for nothing that it does
not need.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

import msgspec
from msgspec import Struct, structs

from controller.config.flags import Operands, read_settings
from controller.config.options import ANY_NAMESPACE, SWITCH, Option
from controller.config.settings import OPTIONS
from controller.leaderelection.lease import LEASES, Lease, Observed, observe
from controller.runtime.requests import Requests
from controller.version import PROGRAM, version
from informers.client import ApiClient, ConfigurationError, load_credentials, open_client
from informers.errors import ApiError, Forbidden, NotFound
from informers.meta import KubeObject, ObjectKey
from informers.resource import Resource


class Connection(Protocol):
    @property
    def kubeconfig(self) -> str: ...

    @property
    def context(self) -> str: ...


PAGE = "500"

T = TypeVar("T", bound=KubeObject)
C = TypeVar("C", bound=Struct)
K = TypeVar("K", bound=Connection)

USUAL_LEASE_S = 15.0
PAUSE_S = 1.0

SAME = {option.field: option for option in OPTIONS}
"""Options that mean here what they mean to `vmherd run`."""

DRY_RUN = Option("dry_run", SWITCH, "send nothing, and print what would be sent")
LEASE_NAMESPACE = Option(
    "leader_election_namespace", ANY_NAMESPACE, "the namespace of the controller's lease", unset="wherever there is one"
)


class CommandFailed(Exception):
    """The command cannot do what it was asked for. `str()` is one line for the person who asked."""


class Holder(Struct, frozen=True):
    """A controller that renews its lease."""

    lease: ObjectKey
    identity: str

    def __str__(self) -> str:
        return f"{self.identity} holds the lease {self.lease}"


def read(
    defaults: C,
    groups: Mapping[str, Sequence[Option]],
    *,
    command: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    follow: Callable[[Mapping[str, object]], Mapping[str, object]] = dict,
    operands: Operands | None = None,
) -> C:
    """The settings of a command; `follow` adds to what was chosen what follows from it.

    Raises UsageError; `--help` prints and raises SystemExit(0).
    """
    settings = read_settings(groups, defaults, command=command, argv=argv, env=env, operands=operands)
    chosen = follow({field: setting.value for field, setting in settings.items()})
    fields = {field.name for field in structs.fields(defaults)}
    return structs.replace(defaults, **{field: value for field, value in chosen.items() if field in fields})


def carry_out(settings: K, work: Callable[[ApiClient, K], Awaitable[None]]) -> None:
    """Do the work with a client of the cluster. Raises CommandFailed, and nothing else that anybody has foreseen."""

    async def connected() -> None:
        async with _client(settings) as client:
            await work(client, settings)

    try:
        asyncio.run(connected())
    except (ConfigurationError, ApiError) as error:
        raise CommandFailed(str(error)) from error
    except msgspec.DecodeError as error:
        raise CommandFailed(f"the API server's answer cannot be read: {error}") from error


@asynccontextmanager
async def _client(connection: Connection) -> AsyncIterator[ApiClient]:
    credentials = await load_credentials(connection.kubeconfig, connection.context)
    async with open_client(credentials, user_agent=f"{PROGRAM}/{version()}") as client:
        yield client


async def list_all(client: Requests, resource: Resource[T], namespace: str = "") -> AsyncIterator[T]:
    """All objects of a kind, page by page; none if the cluster does not serve the kind. Raises ApiError."""
    params = {"limit": PAGE}
    while True:
        try:
            page = resource.decode_page(await client.request("GET", resource.path(namespace), params=params))
        except NotFound:
            return
        for item in page.items or ():
            yield item
        if not page.metadata.continue_:
            return
        params = {"limit": PAGE, "continue": page.metadata.continue_}


async def living_holder(client: Requests, *, name: str, namespace: str = "") -> Holder | None:
    """Who works under a lease of this name, in this namespace or in any; None where nobody renews one.

    A record that is not renewed is waited out: its times are another machine's, and nothing follows from them.
    Raises ApiError.
    """
    clock = asyncio.get_running_loop().time
    known: dict[ObjectKey, Observed] = {}
    while True:
        waiting = False
        for lease in await _leases(client, name, namespace):
            key = lease.metadata.key
            before = known.get(key)
            known[key] = now = observe(before, lease, now=clock(), usual_duration_s=USUAL_LEASE_S)
            if before is not None and now is not before and now.holder:
                return Holder(key, now.holder)
            waiting = waiting or (bool(now.holder) and clock() < now.held_until)
        if not waiting:
            return None
        await asyncio.sleep(PAUSE_S)


async def refuse_beside_a_leader(client: Requests, *, name: str, namespace: str, why: str, force: bool) -> None:
    """Raise CommandFailed while a controller works under this lease, or while that cannot be seen; `why` ends it."""
    if force:
        return
    try:
        holder = await living_holder(client, name=name, namespace=namespace)
    except Forbidden as error:
        raise CommandFailed(f"cannot see whether a controller works: {error}; --force goes on all the same") from error
    if holder is not None:
        raise CommandFailed(f"{holder}: {why}, or --force")


async def _leases(client: Requests, name: str, namespace: str) -> tuple[Lease, ...]:
    path, selector = LEASES.path(namespace), {"fieldSelector": f"metadata.name={name}"}
    return LEASES.decode_page(await client.request("GET", path, params=selector)).items or ()
