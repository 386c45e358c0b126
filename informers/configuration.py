"""How to reach a cluster and who we are there: loaded by kubernetes_asyncio, kept as a small value.

kubernetes_asyncio owns kubeconfigs, certificates, exec plugins, rotating tokens and their refresh. Nothing else of it
is used, and no other module knows it.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from kubernetes_asyncio import config as kube_config
from kubernetes_asyncio.client import Configuration

DEFAULT_KUBECONFIG = Path("~/.kube/config")


class ConfigurationError(Exception):
    """The cluster's address or our credentials could not be loaded. `str()` is one line for people."""


class Credentials:
    """The address of an API server, the TLS context to reach it with, and the token, as fresh as it has to be."""

    def __init__(self, configuration: Any, reload: Callable[[], Awaitable[Any]]) -> None:
        self._configuration = configuration
        self._reload = reload
        self._reloading = asyncio.Lock()
        self.host: str = configuration.host.rstrip("/")
        self.proxy: str | None = configuration.proxy
        self.server_hostname: str | None = configuration.tls_server_name or None
        self.ssl = _tls(configuration)

    async def authorization(self) -> str | None:
        """The Authorization header's value; None where a client certificate says who we are."""
        configuration = self._configuration
        if configuration.refresh_api_key_hook is None:
            token: str | None = configuration.api_key.get("BearerToken")
        else:
            token = await configuration.get_api_key_with_prefix("BearerToken")
        return token.strip() if token else None

    async def renew(self, rejected: str | None) -> None:
        """Load the credentials anew, because the server rejected them; once, however many requests ask for it."""
        async with self._reloading:
            if self._configuration.api_key.get("BearerToken", "").strip() == (rejected or ""):
                self._configuration = await self._reload()


async def load_credentials(kubeconfig: str = "", context: str = "") -> Credentials:
    """From the kubeconfig named, else $KUBECONFIG, else the Pod's service account, else ~/.kube/config.

    Raises ConfigurationError.
    """
    load = _choose_source(kubeconfig, context)
    return Credentials(await load(), load)


def _choose_source(kubeconfig: str, context: str) -> Callable[[], Awaitable[Any]]:
    path = os.path.expanduser(kubeconfig or os.environ.get("KUBECONFIG", ""))
    if path:
        return lambda: _from_kubeconfig(path, context)
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return _from_pod
    return lambda: _from_kubeconfig(str(DEFAULT_KUBECONFIG.expanduser()), context)


async def _from_kubeconfig(path: str, context: str) -> Any:
    configuration = Configuration()
    if not any(map(os.path.isfile, path.split(os.pathsep))):
        raise ConfigurationError(f"no kubeconfig at {path}: name one with --kubeconfig or KUBECONFIG")
    try:
        await kube_config.load_kube_config(
            config_file=path, context=context or None, client_configuration=configuration, persist_config=False
        )
    except Exception as error:
        # Whatever is wrong with somebody's file is theirs to know in a line: the loader raises a dozen types.
        raise ConfigurationError(f"kubeconfig {path} cannot be used: {_first_line(error)}") from error
    return configuration


async def _from_pod() -> Any:
    configuration = Configuration()
    try:
        kube_config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except Exception as error:
        raise ConfigurationError(f"the Pod's service account cannot be used: {_first_line(error)}") from error
    return configuration


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _tls(configuration: Any) -> ssl.SSLContext | bool:
    if not configuration.host.startswith("https:"):
        return False
    try:
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        # Clusters' own CAs often lack the extensions that Python 3.13 asks for.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"the certificates of {configuration.host} cannot be used: {error}") from error
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
