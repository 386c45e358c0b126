"""An exec plugin is a command in a kubeconfig. It prints a token or a certificate. A plugin that hangs is killed.

The rules are those of client-go, `plugin/pkg/client/auth/exec/exec.go`.
"""

import asyncio
import os
import signal
import sys
from base64 import b64encode
from contextlib import suppress
from datetime import datetime
from subprocess import DEVNULL, Popen
from tempfile import TemporaryFile
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct, field

from informers.http.kubeconfig import EXEC, Cluster, ConfigurationError, Exec, mode_of

TIME_LIMIT_S = 15.0
"""The time limit of a plugin, in seconds. On a terminal there is no limit, because the plugin may wait for its user."""

NOT_TOLD: Final = ("certificate-authority", "certificate-authority-data", "extensions")


class Status(Struct, frozen=True, rename="camel"):
    """The credentials that a plugin prints. Certificate and key are texts in PEM format."""

    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: Annotated[datetime, Meta(tz=True)] | None = None


class _Credential(Struct, frozen=True):
    kind: Literal["ExecCredential"]
    status: Status
    api_version: str = field(name="apiVersion")


def is_interactive() -> bool:
    """Return True if a plugin can ask a user. Then it may take any time, and the user sees its messages."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty()


async def run_plugin(plugin: Exec, cluster: Cluster, authority: bytes) -> Status:
    """Return the credentials that the plugin prints. `authority` is the CA. Raise ConfigurationError if it fails."""
    interactive = is_interactive() and mode_of(plugin) != "Never"
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.get("provideClusterInfo"):
        spec["cluster"] = _cluster_info(cluster, authority)
    info = {"apiVersion": plugin["apiVersion"], "kind": "ExecCredential", "spec": spec}
    variables = {each["name"]: each.get("value", "") for each in plugin.get("env", ())}
    environment = {**os.environ, **variables, "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode()}
    if mode_of(plugin) == "Always" and not interactive:
        raise ConfigurationError(f"exec: {plugin['command']}: it needs a terminal (interactiveMode: Always)")
    try:
        output = await _run([plugin["command"], *plugin.get("args", ())], environment, interactive=interactive)
        return _status_in(output, plugin["apiVersion"])
    except (ConfigurationError, OSError) as error:
        raise ConfigurationError(f"exec: {plugin['command']}: {error}") from error


async def _run(command: list[str], environment: dict[str, str], *, interactive: bool) -> bytes:
    """Return the output of a command, or kill it in time, with its children if it asks no user."""
    # A child that outlives the command keeps a pipe open, so waiting for the end of a pipe has no limit.
    with TemporaryFile() as output, TemporaryFile() as complaint:
        own: Any = {} if interactive else {"stdin": DEVNULL, "stderr": complaint, "start_new_session": True}
        try:
            # asyncio would lose the process if this task were cancelled during the start.
            process = Popen(command, env=environment, stdout=output, **own)  # noqa: ASYNC220
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"it cannot be run: {getattr(error, 'strerror', error)}") from error
        try:
            async with asyncio.timeout(None if interactive else TIME_LIMIT_S):
                await asyncio.to_thread(process.wait)
        except TimeoutError as error:
            raise ConfigurationError(f"it has not ended within {TIME_LIMIT_S:g} s") from error
        finally:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    process.kill() if interactive else os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0), complaint.seek(0)
        if process.returncode:
            why = "its message is above" if interactive else complaint.read().decode(errors="replace") or "no message"
            raise ConfigurationError(f"it ended with code {process.returncode}: {why}")
        return output.read()


def _status_in(output: bytes, version: str) -> Status:
    try:
        credential = msgspec.json.decode(output, type=_Credential)
    except msgspec.DecodeError as error:
        raise ConfigurationError(f"it did not print an ExecCredential: {error}") from error
    status = credential.status
    if credential.api_version != version:
        raise ConfigurationError(f"it did not print the version {version} that the kubeconfig asks for")
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise ConfigurationError("it printed only one of certificate and key")
    if not (status.token or status.client_key_data):
        raise ConfigurationError("it printed neither a token nor a certificate")
    return status


def _cluster_info(cluster: Cluster, authority: bytes) -> dict[str, Any]:
    info = {name: value for name, value in cluster.items() if value and name not in NOT_TOLD}
    if authority:
        info["certificate-authority-data"] = b64encode(authority).decode()
    for each in cluster.get("extensions", ()):
        # This extension of the cluster has settings of the plugin.
        if each.get("name") == f"{EXEC}/exec":
            info["config"] = each.get("extension")
    return info
