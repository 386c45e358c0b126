"""This module loads the address and the credentials of a cluster with kubernetes_asyncio.

kubernetes_asyncio reads kubeconfigs and certificates, runs exec plugins, and refreshes tokens. The project uses nothing
else of that package. Only this module, `informers.http.exec_plugin` and `informers.http.loaders` import
kubernetes_asyncio. Each function raises ConfigurationError if it fails. The message of the error is one line.
"""

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import structlog
import yaml

from informers.http.exec_plugin import is_interactive, use_killable_plugins
from informers.http.loaders import import_loaders

kube_config, kube_client = import_loaders()
use_killable_plugins()

log = structlog.get_logger()

DEFAULT_KUBECONFIG = Path("~/.kube/config")
POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")

RENEWAL_INTERVAL_S = 5.0
"""Shortest time between two reloads of the credentials in seconds.

Without this limit, each rejected request could run the exec plugin again.
"""

RELOAD_TIMEOUT_S = 15.0
"""Time limit, in seconds, for loading credentials. An exec plugin that hangs fails after this time.

On a terminal there is no limit, because the plugin may wait for its user.
"""

TRUST_CHECK_INTERVAL_S = 60.0
"""Time between two checks for changed certificate files, in seconds."""

MAX_REASON_LENGTH = 300

Fingerprint: TypeAlias = tuple[tuple[str, int, int, int], ...]
"""The path, inode, size and modification time of each certificate file that exists."""


class ConfigurationError(Exception):
    """The cluster's address or the credentials could not be loaded. `str(error)` is one line for users."""


class NoKubeconfig(ConfigurationError):
    """No kubeconfig exists at the chosen path."""


class Loaded(NamedTuple):
    """The data of one kubeconfig or of the Pod's service account.

    `configuration` is a `Configuration` of kubernetes_asyncio. `namespace` is "" if the source has no namespace.
    """

    configuration: Any
    namespace: str


class Credentials:
    """The address of an API server, a TLS context for it, and a token that is refreshed before it expires.

    `load_credentials` creates the instances. Any number of clients can share one instance. `refresh_trust` looks for
    changed certificate files once a minute, and `renew_trust` looks for them at once.
    """

    def __init__(self, loaded: Loaded, reload: Callable[[], Awaitable[Loaded]]) -> None:
        """Store the loaded data. `reload` is a function that loads the data again from the same source."""
        self._configuration = configuration = loaded.configuration
        self.namespace: str = loaded.namespace or "default"
        self._reload = reload
        self._reloading: asyncio.Task[None] | None = None
        self._reloaded_at = float("-inf")
        self._checked_at = float("-inf")
        self._fingerprint = _fingerprint(configuration)
        self.host: str = configuration.host.rstrip("/")
        self.proxy: str | None = configuration.proxy
        self.server_hostname: str | None = configuration.tls_server_name or None
        self.ssl = _tls(configuration)

    async def authorization(self) -> str | None:
        """Return the value of the Authorization header, or None if a client certificate identifies the client.

        Raise ConfigurationError if the token has to be refreshed and the refresh fails.
        """
        configuration = self._configuration
        if configuration.refresh_api_key_hook is not None:
            try:
                async with asyncio.timeout(RELOAD_TIMEOUT_S):
                    await configuration.get_api_key_with_prefix("BearerToken")
            except Exception as error:
                raise ConfigurationError(f"the token cannot be refreshed: {_one_line(error)}") from error
        return _token_of(configuration)

    async def renew(self, rejected: str | None) -> None:
        """Load the credentials again, because the server rejected the token `rejected`.

        Do nothing if `rejected` is not the current token. Do nothing for `RENEWAL_INTERVAL_S` seconds after the last
        reload. So several rejected requests cause only one reload.

        Raise ConfigurationError if the credentials cannot be loaded. In this case the old credentials stay in use.
        """
        if _token_of(self._configuration) == rejected:
            await self._reload_once()

    async def refresh_trust(self) -> None:
        """Load the certificate files again if one of them has changed since the last check.

        A check happens at most once in `TRUST_CHECK_INTERVAL_S` seconds. If the new files cannot be used, the old TLS
        context stays in use, and the next check tries again.
        """
        now = asyncio.get_running_loop().time()
        if now - self._checked_at < TRUST_CHECK_INTERVAL_S:
            return
        self._checked_at = now
        await self._follow_files(self._configuration)

    async def renew_trust(self, distrusted: ssl.SSLContext | bool) -> bool:
        """Load the certificates again, because the TLS context `distrusted` does not trust the server.

        Return True if another TLS context is in use now.
        """
        if self.ssl is distrusted:
            try:
                await self._reload_once()
                await self._follow_files(self._configuration)
            except ConfigurationError as error:
                log.warning("the certificates cannot be loaded again", why=str(error))
        return self.ssl is not distrusted

    async def _reload_once(self) -> None:
        """Load the data again. All callers share one reload. If a caller is cancelled, the reload continues."""
        if self._reloading is None or self._reloading.done():
            now = asyncio.get_running_loop().time()
            if now - self._reloaded_at < RENEWAL_INTERVAL_S:
                return
            self._reloaded_at = now
            # The reload must continue even if the request that started it is cancelled. `RELOAD_TIMEOUT_S` limits the
            # reload.
            self._reloading = asyncio.create_task(self._reload_now(), name="credentials")  # noqa: TID251
        await asyncio.shield(self._reloading)

    async def _reload_now(self) -> None:
        configuration = (await _in_time(self._reload())).configuration
        if configuration.cert_file:
            self._fingerprint = _fingerprint(configuration)
            self.ssl = await asyncio.to_thread(_tls, configuration)
        else:
            await self._follow_files(configuration)
        self._configuration = configuration

    async def _follow_files(self, configuration: Any) -> None:
        found = _fingerprint(configuration)
        if found == self._fingerprint:
            return
        try:
            self.ssl = await asyncio.to_thread(_tls, configuration)
        except ConfigurationError as error:
            log.warning("the changed certificates cannot be used, the old ones stay in use", why=str(error))
            return
        self._fingerprint = found
        log.info("loaded the changed certificates", files=[path for path, *_ in found])


async def load_credentials(
    kubeconfig: str = "", context: str = "", *, server: str = "", token: str = ""
) -> Credentials:
    """Load the credentials from the first source that is set, and return them.

    The sources are, in this order: the path `kubeconfig`, the variable KUBECONFIG, the Pod's service account (in a
    cluster only), and the file ~/.kube/config. `context` selects a context of the kubeconfig. If `context` is "", the
    current context of the kubeconfig is used.

    `server` replaces the address of the source. `token` replaces all credentials of the source, a client certificate
    included. With a `server`, no kubeconfig is needed.

    Raise ConfigurationError if the source cannot be used.
    """
    load = _choose_source(kubeconfig, context)
    if server or token:
        load = _with_overrides(load, server, token)
    return Credentials(await _in_time(load()), load)


def _with_overrides(load: Callable[[], Awaitable[Loaded]], server: str, token: str) -> Callable[[], Awaitable[Loaded]]:
    async def overridden() -> Loaded:
        try:
            loaded = await load()
        except NoKubeconfig:
            if not server:
                raise
            loaded = Loaded(kube_client.Configuration(), "")
        configuration = loaded.configuration
        if server:
            configuration.host = server
        if token:
            configuration.api_key = {"BearerToken": f"Bearer {token}"}
            configuration.refresh_api_key_hook = None
            configuration.cert_file = configuration.key_file = None
        _check(configuration, "the command line")
        return loaded

    return overridden


async def _in_time(loading: Awaitable[Loaded]) -> Loaded:
    try:
        async with asyncio.timeout(None if is_interactive() else RELOAD_TIMEOUT_S):
            return await loading
    except TimeoutError as error:
        raise ConfigurationError(
            f"the credentials were not loaded within {RELOAD_TIMEOUT_S:g} s: does an exec plugin hang?"
        ) from error


def _choose_source(kubeconfig: str, context: str) -> Callable[[], Awaitable[Loaded]]:
    path = os.path.expanduser(kubeconfig or os.environ.get("KUBECONFIG", ""))
    if path:
        return lambda: _from_kubeconfig(path, context)
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return _from_pod
    return lambda: _from_kubeconfig(str(DEFAULT_KUBECONFIG.expanduser()), context)


async def _from_kubeconfig(path: str, context: str) -> Loaded:
    configuration = kube_client.Configuration()
    # kubernetes_asyncio sets the host to localhost by default. If the kubeconfig names no server, the client must not
    # connect to localhost.
    configuration.host = ""
    if not any(map(os.path.isfile, path.split(os.pathsep))):
        raise NoKubeconfig(f"no kubeconfig at {path}: set --kubeconfig or KUBECONFIG to an existing file")
    try:
        loader = await kube_config.load_kube_config(
            config_file=path,
            context=_choose_context(path, context),
            client_configuration=configuration,
            persist_config=False,
        )
        namespace = ((loader.current_context or {}).get("context") or {}).get("namespace")
    except (kube_config.ConfigException, OSError, yaml.YAMLError) as error:
        raise ConfigurationError(f"kubeconfig {path} cannot be used: {_one_line(error)}") from error
    except Exception as error:
        # If the file is malformed, the loader can raise exceptions of many types.
        raise ConfigurationError(f"{path} is not a valid kubeconfig ({_one_line(error)})") from error
    _check(configuration, f"kubeconfig {path}")
    return Loaded(configuration, namespace if isinstance(namespace, str) else "")


def _choose_context(path: str, wanted: str) -> str | None:
    """Return the context `wanted`, or the current-context of the first file in `path` that has one, as kubectl does.

    `path` is a list of files, as in KUBECONFIG. If no context is chosen, return None. Raise ConfigException if no file
    has the chosen context.
    """
    files = filter(os.path.isfile, path.split(os.pathsep))
    contents = [yaml.safe_load(Path(file).read_bytes()) or {} for file in files]
    chosen = wanted or next((current for each in contents if (current := each.get("current-context"))), None)
    known = [each["name"] for content in contents for each in content.get("contexts") or ()]
    if chosen and chosen not in known:
        contexts = ", ".join(map(str, known)) or "none"
        raise kube_config.ConfigException(f'context "{chosen}" does not exist (contexts: {contexts})')
    return chosen


async def _from_pod() -> Loaded:
    configuration = kube_client.Configuration()
    try:
        kube_config.load_incluster_config(client_configuration=configuration)
    except Exception as error:
        raise ConfigurationError(f"the Pod's service account cannot be used: {_one_line(error)}") from error
    _check(configuration, "the Pod's service account")
    return Loaded(configuration, _pod_namespace())


def _pod_namespace() -> str:
    try:
        return POD_NAMESPACE.read_text().strip()
    except OSError:
        return ""


def _check(configuration: Any, source: str) -> None:
    """Raise ConfigurationError if the server's address or the token is not valid.

    The loader of kubernetes_asyncio does not check them.
    """
    if not _is_address(configuration.host):
        found = f"{configuration.host[:80]!r} is not an address" if configuration.host else "it names no server"
        raise ConfigurationError(f"{source} has to name a server such as https://host:6443: {found}")
    token = _token_of(configuration)
    if token is not None and not (token.isascii() and token.isprintable()):
        raise ConfigurationError(f"{source} has a token with characters that are not allowed in an HTTP header")


def _is_address(host: str) -> bool:
    try:
        address = urlsplit(host)
        return address.scheme in {"http", "https"} and bool(address.hostname) and address.port != 0
    except ValueError:
        return False


def _token_of(configuration: Any) -> str | None:
    """Return the token with its scheme, such as "Bearer ...", or None if the configuration has no token.

    Spaces and newlines around the token are removed, because a token file often ends with a newline.
    """
    token: str = configuration.api_key.get("BearerToken") or ""
    return token.strip() or None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:MAX_REASON_LENGTH] or type(error).__name__


def _fingerprint(configuration: Any) -> Fingerprint:
    found = []
    for path in filter(None, (configuration.ssl_ca_cert, configuration.cert_file, configuration.key_file)):
        with suppress(OSError):
            # `stat` follows symbolic links. In a Pod, a changed file is a new target of a link.
            stat = os.stat(path)
            found.append((path, stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return tuple(found)


def _tls(configuration: Any) -> ssl.SSLContext | bool:
    if not configuration.host.startswith("https:"):
        return False
    try:
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        # The certificate authorities of clusters often lack the extensions that Python 3.13 requires.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"the certificates of {configuration.host} cannot be used: {error}") from error
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
