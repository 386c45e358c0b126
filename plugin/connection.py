"""Opens the connection to the API server with kubectl's flags, and turns errors into one line."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, NoReturn

import click
import msgspec
import structlog

from controller.version import PROGRAM, version
from informers.errors import ApiError, Forbidden, NotFound
from informers.http.client import ApiClient, ConfigurationError, load_credentials, open_client
from informers.http.proxies import proxy_for
from informers.resource import Resource
from plugin.flags import SERVER, Flags
from plugin.printing import note
from plugin.views.steering import Refused

NO_TIMEOUT_S = 24 * 3600.0


class Failed(click.ClickException):
    """An error that ends a command with exit code 1. The message is for the user."""


class Session(ApiClient):
    """A connection for one command: sends requests, with the user's flags for each request and for each write."""

    def __init__(self, client: ApiClient, flags: Flags, notice: str = "") -> None:
        self._client = client
        self.flags = flags
        self.notice = notice
        self.failures: list[str] = []

    @contextmanager
    def going_on(self, *errors: type[Exception]) -> Iterator[None]:
        """Print one of these errors, or any expected one. The command goes on, and ends with exit code 1."""
        expected = errors or (Failed, ApiError, Refused)
        try:
            yield
        except expected as error:
            line = error.message if isinstance(error, Failed) else describe(error)
            if line not in self.failures:
                note(line)
                self.failures.append(line)

    @property
    def namespace(self) -> str:
        return self.flags.namespace or self._client.namespace

    @property
    def scope(self) -> str:
        """The namespace whose objects a command shows, or "" for all namespaces."""
        return "" if self.flags.all_namespaces else self.namespace

    @property
    def where(self) -> str:
        """The end of a sentence about missing objects, such as ` in shop namespace`."""
        return f" in {self.scope} namespace" if self.scope else ""

    async def request(self, method: str, path: str, *, params: Mapping[str, str] | None = None, **more: Any) -> bytes:
        """Send a request. A write names the field manager, and is a dry run on the server if the user wants one."""
        if method != "GET":
            params = {**(params or {}), "fieldManager": self.flags.field_manager}
            params |= {"dryRun": "All"} if self.flags.dry_run == SERVER else {}
        more["timeout_s"] = more.get("timeout_s") or self.flags.request_timeout_s or NO_TIMEOUT_S
        return await self._client.request(method, path, params=params, **more)

    def stream(self, path: str, **more: Any) -> Any:
        return self._client.stream(path, **more)

    async def names_of(self, resource: Resource[Any], namespace: str = "") -> list[str]:
        """Return the names of at most 500 objects, for a suggestion. Return none if the user may not read them."""
        try:
            answer = await self.request("GET", resource.path(namespace), params={"limit": "500"})
        except (Forbidden, NotFound):
            return []
        return [each.metadata.name for each in resource.decode_page(answer).items or ()]


def carry_out(flags: Flags, work: Callable[[Session], Awaitable[None]]) -> None:
    """Connect, and call `work`. Raise Failed for each expected failure, also if an object refuses the change."""

    async def connected() -> None:
        async with connect(flags) as session:
            if session.notice:
                note(f"Warning: {session.notice}")
            await work(session)
            if session.failures:
                raise click.exceptions.Exit(1)

    structlog.configure(processors=[_log_on_stderr])
    try:
        asyncio.run(connected())
    except (ApiError, ConfigurationError, Refused) as error:
        raise Failed(describe(error)) from error
    except msgspec.DecodeError as error:
        raise Failed(f"error: the API server's answer cannot be read: {error}") from error


def _log_on_stderr(logger: object, level: str, line: Mapping[str, Any]) -> NoReturn:
    """Print a warning of the client as one line. The results are on stdout, where structlog would print it."""
    if level != "info":
        note(f"Warning: {line['event']}: {line.get('why', '')}")
    raise structlog.DropEvent


def describe(error: Exception) -> str:
    reason = getattr(error, "reason", "")
    return f"Error from server ({reason}): {error}" if reason else f"error: {error}"


@asynccontextmanager
async def connect(flags: Flags) -> AsyncIterator[Session]:
    """Open a connection. Raise ConfigurationError, ApiError."""
    credentials = await load_credentials(flags.kubeconfig, **flags.overrides)
    credentials.proxy = credentials.proxy or proxy_for(credentials.host, os.environ)
    async with open_client(credentials, user_agent=f"kubectl-{PROGRAM}/{version()}") as client:
        yield Session(client, flags, credentials.notice)
