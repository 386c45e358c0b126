"""The common parts of the commands that do one task and end: options, the API client, errors as one line."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import click
import msgspec

from controller.config.settings import Config, Connection
from controller.leaderelection.lease import Observed, observe
from controller.leaderelection.other_leader import leases_named
from controller.runtime.execute.requests import Requests
from controller.version import PROGRAM, version
from informers.errors import ApiError, Forbidden
from informers.http.client import ApiClient, ConfigurationError, load_credentials, open_client
from informers.meta import ObjectKey

K = TypeVar("K", bound=Connection)

USUAL_LEASE_S = 15.0
PAUSE_S = 1.0


class CommandFailed(click.ClickException):
    """An error that ends a command with exit code 1. `str()` is one line for the user with the reason."""


def carry_out(settings: K, work: Callable[[ApiClient, K], Awaitable[None]]) -> None:
    """Raises CommandFailed for each expected failure."""

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
    if credentials.notice:
        click.echo(f"Warning: {credentials.notice}", err=True)
    async with open_client(credentials, user_agent=f"{PROGRAM}/{version()}") as client:
        yield client


async def active_holder(client: Requests, *, name: str, namespace: str = "") -> str:
    """Return which controller renews the lease `name` within its duration, or "". An empty namespace means any."""
    clock = asyncio.get_running_loop().time
    observed: dict[ObjectKey, Observed] = {}
    while True:
        waiting = False
        for lease in await leases_named(client, name, namespace):
            key = lease.metadata.key
            previous = observed.get(key)
            observed[key] = now = observe(previous, lease, now=clock(), usual_duration_s=USUAL_LEASE_S)
            if previous is not None and now is not previous and now.holder:
                return f"{now.holder} holds the lease {key}"
            waiting = waiting or (bool(now.holder) and clock() < now.held_until)
        if not waiting:
            return ""
        await asyncio.sleep(PAUSE_S)


async def refuse_if_controller_runs(client: Requests, config: Config, *, why: str, force: bool) -> None:
    """Raise CommandFailed if a controller runs, or if the user may not read leases. `force` checks nothing."""
    if force:
        return
    name, namespace = config.leader_election_id, config.leader_election_namespace
    try:
        holder = await active_holder(client, name=name, namespace=namespace)
    except Forbidden as error:
        raise CommandFailed(f"cannot check whether a controller runs: {error}; --force skips this check") from error
    if holder:
        raise CommandFailed(f"{holder}: {why}, or use --force")
