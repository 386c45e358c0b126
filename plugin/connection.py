"""Opens the connection to the API server with kubectl's flags, and turns errors into one line."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click
import msgspec
import yaml

from controller.version import PROGRAM, version
from informers.errors import ApiError, Forbidden, NotFound
from informers.http.client import ApiClient, ConfigurationError, load_credentials, open_client
from informers.http.configuration import DEFAULT_KUBECONFIG
from informers.resource import Resource
from plugin.flags import SERVER, Flags
from plugin.proxy import proxy_for
from plugin.views.steering import Refused

OVERLAY = "vmherd-command-line"
"""The name of the context that the flags --cluster and --user describe."""

NO_TIMEOUT_S = 24 * 3600.0


class Failed(click.ClickException):
    """An error that ends a command with exit code 1. The message is for the user."""


class Session(ApiClient):
    """A connection for one command: sends requests, with the user's flags for each request and for each write."""

    def __init__(self, client: ApiClient, flags: Flags) -> None:
        self._client = client
        self.flags = flags

    @property
    def namespace(self) -> str:
        """The namespace of the user's flag, or of the context."""
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
            await work(session)

    try:
        asyncio.run(connected())
    except (ApiError, ConfigurationError, Refused) as error:
        raise Failed(describe(error)) from error
    except msgspec.DecodeError as error:
        raise Failed(f"error: the API server's answer cannot be read: {error}") from error


def describe(error: Exception) -> str:
    """Return the error as kubectl prints it."""
    reason = getattr(error, "reason", "")
    return f"Error from server ({reason}): {error}" if reason else f"error: {error}"


@asynccontextmanager
async def connect(flags: Flags) -> AsyncIterator[Session]:
    """Open a connection. Raise ConfigurationError, ApiError."""
    with tempfile.TemporaryDirectory(prefix="vmherd-") as directory:
        kubeconfig, context = flags.kubeconfig, flags.context
        if flags.cluster or flags.user:
            kubeconfig, context = write_overlay(Path(directory), flags)
        credentials = await load_credentials(kubeconfig, context, server=flags.server, token=flags.token)
        credentials.proxy = credentials.proxy or proxy_for(credentials.host, os.environ)
        async with open_client(
            credentials, user_agent=f"kubectl-{PROGRAM}/{version()}", headers=list(impersonation(flags))
        ) as client:
            yield Session(client, flags)


def impersonation(flags: Flags) -> Iterable[tuple[str, str]]:
    """Return the headers of the flags --as and --as-group."""
    if flags.as_group and not flags.as_user:
        raise ConfigurationError("--as-group needs --as, the user who is impersonated")
    if flags.as_user:
        yield "Impersonate-User", flags.as_user
    for group in flags.as_group:
        yield "Impersonate-Group", group


def write_overlay(directory: Path, flags: Flags) -> tuple[str, str]:
    """Write a kubeconfig with one context for the flags --cluster and --user.

    Return the path list with this file and the user's files, and the name of the context. The file has no secret.
    Raise ConfigurationError if a flag names nothing in the user's kubeconfig.
    """
    paths = flags.kubeconfig or os.environ.get("KUBECONFIG", "") or str(DEFAULT_KUBECONFIG)
    files = [Path(path).expanduser() for path in paths.split(os.pathsep) if path]
    documents = [_read(file) for file in files if file.is_file()]
    wanted = flags.context or next((each["current-context"] for each in documents if each.get("current-context")), "")
    chosen = _named(documents, "contexts", wanted)
    if flags.context and not chosen:
        raise ConfigurationError(f"no context {flags.context!r} in the kubeconfig {paths}")
    context = dict(chosen.get("context") or {})
    for field, section, name in (("cluster", "clusters", flags.cluster), ("user", "users", flags.user)):
        if name and not _named(documents, section, name):
            raise ConfigurationError(f"no {field} {name!r} in the kubeconfig {paths}")
        if name:
            context[field] = name
    overlay = directory / "command-line"
    overlay.write_text(yaml.safe_dump({"contexts": [{"name": OVERLAY, "context": context}]}))
    return os.pathsep.join([str(overlay), *map(str, files)]), OVERLAY


def _read(file: Path) -> Mapping[str, Any]:
    try:
        document = yaml.safe_load(file.read_bytes())
    except (OSError, yaml.YAMLError) as error:
        raise ConfigurationError(f"kubeconfig {file} cannot be used: {' '.join(str(error).split())[:300]}") from error
    return document if isinstance(document, dict) else {}


def _named(documents: Iterable[Mapping[str, Any]], section: str, name: object) -> Mapping[str, Any]:
    """Return the first entry with this name in a section of the documents, or an empty entry."""
    for document in documents:
        for entry in document.get(section) or ():
            if isinstance(entry, dict) and entry.get("name") == name:
                return entry
    return {}
