"""This module loads the address of a cluster and the credentials for it. Its errors have one line.

kubernetes_asyncio makes the Authorization header, and reads and refreshes the token of a Pod. The project uses nothing
else of that package. Each function raises ConfigurationError if it fails.
"""

import asyncio
import os
import ssl
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import quote

import structlog

from informers.http.exec_plugin import run_plugin
from informers.http.kubeconfig import (
    Certificates,
    Chosen,
    Cluster,
    ConfigurationError,
    NoKubeconfig,
    Overrides,
    Pem,
    Server,
    User,
    parse_server,
    read_file,
    read_kubeconfig,
    tls_context,
)
from informers.http.pod import pod_namespace

PACKAGE: Final = "kubernetes_asyncio"
CLIENT: Final = f"{PACKAGE}.client"


def import_loaders() -> tuple[ModuleType, ModuleType]:
    """Return the modules `kubernetes_asyncio.config` and `kubernetes_asyncio.client`.

    The `__init__` modules of both packages only import the generated client, 830 modules and 34 MB of classes, so they
    are not run. If a later version cannot be imported in this way, the whole package is imported.

    The client module may be incomplete, but has the class `Configuration`, in which the loaders store their results.
    Raise ImportError if kubernetes_asyncio is not installed.
    """
    if PACKAGE not in sys.modules:
        try:
            _prepare_packages()
            return import_module(f"{PACKAGE}.config"), sys.modules[CLIENT]
        except (ImportError, AttributeError):
            for name in [each for each in sys.modules if each == PACKAGE or each.startswith(f"{PACKAGE}.")]:
                del sys.modules[name]
    return import_module(f"{PACKAGE}.config"), import_module(CLIENT)


def _prepare_packages() -> None:
    for name in (PACKAGE, CLIENT):
        spec = find_spec(name)
        if spec is None:
            raise ImportError(f"no {name}")
        sys.modules[name] = module_from_spec(spec)
    client = sys.modules[CLIENT]
    vars(sys.modules[PACKAGE])["client"] = client
    configuration = import_module(f"{CLIENT}.configuration").Configuration
    # The loaders use ApiClient only in functions that the project does not call.
    vars(client).update(Configuration=configuration, ApiClient=object)


kube_config, kube_client = import_loaders()

log = structlog.get_logger()

DEFAULT_KUBECONFIG = Path("~/.kube/config")

RENEWAL_INTERVAL_S = 5.0
TRUST_CHECK_INTERVAL_S = 60.0
HEADER: Final = "!#$&'*+^`|"
"""The characters that the name of a header can have, besides letters, digits and those that are never quoted."""


class Loaded(NamedTuple):
    """The data of one source. `withheld` is True if an address without encryption does not get its credentials."""

    server: Server
    token: Any
    namespace: str
    proxy: str
    headers: tuple[tuple[str, str], ...]
    certificates: Certificates = Certificates()
    verifies: bool = True
    tls_server_name: str = ""
    withheld: bool = False

    def tls(self, pem: Pem) -> ssl.SSLContext | Literal[True]:
        """Return the TLS context. For http, return True, which aiohttp does not read. False would verify nothing."""
        return tls_context(pem, verifies=self.verifies) if self.server.is_encrypted else True


class Credentials:
    """The address of an API server, a TLS context, and a token that is refreshed before it expires.

    All clients of an event loop can share it. `notice` is a sentence if the server does not get the credentials, else
    "".
    """

    def __init__(self, loaded: Loaded, reload: Callable[[], Awaitable[Loaded]]) -> None:
        self._loaded = loaded
        self._reload = reload
        self._reloading: asyncio.Task[None] | None = None
        self._reloaded_at = float("-inf")
        self._checked_at = float("-inf")
        self._pem = loaded.certificates.read()
        self.namespace: str = loaded.namespace or "default"
        self.host: str = loaded.server.url
        self.proxy: str | None = loaded.proxy or None
        self.headers = loaded.headers
        self.server_hostname: str | None = loaded.tls_server_name or None
        self.ssl = loaded.tls(self._pem)
        self.notice = f"{self.host} gets no credentials, because http is not encrypted" if loaded.withheld else ""

    async def authorization(self) -> str | None:
        """Return the Authorization header, or None with a client certificate. Raise ConfigurationError."""
        configuration = self._loaded.token
        if configuration.refresh_api_key_hook is not None:
            try:
                await configuration.get_api_key_with_prefix("BearerToken")
            except Exception as error:
                raise ConfigurationError(f"the token cannot be refreshed: {error}") from error
        return _token_of(configuration)

    async def renew(self, rejected: str | None) -> None:
        """Load new credentials for the token `rejected`, once in `RENEWAL_INTERVAL_S`. Raise ConfigurationError."""
        if _token_of(self._loaded.token) == rejected:
            await self._reload_once()

    async def refresh_trust(self) -> None:
        """Load changed certificate files, at most once in `TRUST_CHECK_INTERVAL_S` seconds, if they can be used."""
        now = asyncio.get_running_loop().time()
        if now - self._checked_at < TRUST_CHECK_INTERVAL_S:
            return
        self._checked_at = now
        await self._follow_files(self._loaded)

    async def renew_trust(self, distrusted: ssl.SSLContext | bool) -> bool:
        """Load the certificates again, because `distrusted` does not trust the server. Return whether they are new."""
        if self.ssl is distrusted:
            try:
                await self._reload_once()
                await self._follow_files(self._loaded)
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
            # The reload must continue even if the request that started it is cancelled. It ends, because an exec plugin
            # has a time limit.
            self._reloading = asyncio.create_task(self._reload_now(), name="credentials")  # noqa: TID251
        await asyncio.shield(self._reloading)

    async def _reload_now(self) -> None:
        loaded = await self._reload()
        if loaded.server != self._loaded.server:
            raise ConfigurationError(f"the credentials are now for {loaded.server.url}: a restart is needed")
        await self._follow_files(loaded)
        self._loaded = loaded

    async def _follow_files(self, loaded: Loaded) -> None:
        try:
            pem = loaded.certificates.read()
            if pem == self._pem:
                return
            self.ssl = await asyncio.to_thread(loaded.tls, pem)
        except ConfigurationError as error:
            log.warning("the changed certificates cannot be used, the old ones stay in use", why=str(error))
            return
        self._pem = pem
        log.info(
            "loaded the changed certificates", files=[each for each in loaded.certificates if isinstance(each, str)]
        )


async def load_credentials(kubeconfig: str = "", context: str = "", **overrides: Any) -> Credentials:
    """Load the credentials from the first source that is set. Raise ConfigurationError if it cannot be used.

    The sources are, in this order: the path `kubeconfig`, the variable KUBECONFIG, the Pod's service account (in a
    cluster only), and the file ~/.kube/config. `context` selects a context of the kubeconfig, or "" the current one.
    The other arguments are the fields of `Overrides`, with the meaning of kubectl's flags.

    A `server` replaces the address of the source. It gets no credentials of the Pod, and needs no kubeconfig. A `token`
    replaces all credentials of the source, a client certificate included.
    """
    load = _choose_source(kubeconfig, Overrides(context, **overrides))
    return Credentials(await load(), load)


def _choose_source(kubeconfig: str, overrides: Overrides) -> Callable[[], Awaitable[Loaded]]:
    listed = os.environ.get("KUBECONFIG", "")
    if not kubeconfig and not listed and os.environ.get("KUBERNETES_SERVICE_HOST") and not overrides.server:
        return lambda: _from_pod(overrides)
    names = [kubeconfig] if kubeconfig else (listed or str(DEFAULT_KUBECONFIG)).split(os.pathsep)
    paths = [Path(os.path.expanduser(name)) for name in names if name]
    return lambda: _from_files(paths, overrides)


async def _from_files(paths: Sequence[Path], overrides: Overrides) -> Loaded:
    source = f"kubeconfig {os.pathsep.join(map(str, paths))}"
    try:
        chosen = read_kubeconfig(paths, overrides)
    except NoKubeconfig:
        if not overrides.server:
            raise
        chosen = Chosen({}, {}).with_overrides(overrides)
    return await _load(chosen, "the command line" if overrides.server else source)


async def _from_pod(overrides: Overrides) -> Loaded:
    configuration = kube_client.Configuration()
    source = "the Pod's service account"
    try:
        kube_config.load_incluster_config(client_configuration=configuration)
    except Exception as error:
        raise ConfigurationError(f"{source} cannot be used: {error}") from error
    cluster: Cluster = {"server": configuration.host, "certificate-authority": configuration.ssl_ca_cert}
    loaded = await _load(Chosen(cluster, {}, pod_namespace()).with_overrides(overrides), source)
    return loaded if overrides.token else loaded._replace(token=configuration)


async def _load(chosen: Chosen, source: str) -> Loaded:
    """Return the data for the chosen cluster and user. A server without encryption gets no credentials."""
    cluster, user, namespace = chosen
    server = parse_server(cluster.get("server", ""), source)
    if proxy := cluster.get("proxy-url", ""):
        parse_server(proxy, f"proxy-url of {source}")
    authority = cluster.get("certificate-authority") or cluster.get("certificate-authority-data", b"")
    certificate = user.get("client-certificate") or user.get("client-certificate-data", b"")
    key = user.get("client-key") or user.get("client-key-data", b"")
    certificates = Certificates(authority, certificate, key) if certificate else Certificates(authority)
    loaded = Loaded(server, kube_client.Configuration(), namespace, proxy, tuple(_impersonation(user)), certificates)
    try:
        pem = certificates.read()
        if server.is_encrypted:
            loaded = await _with_credentials(loaded, cluster, user, pem)
        elif server.login or chosen.has_credentials:
            loaded = loaded._replace(withheld=True)
    except ConfigurationError as error:
        raise ConfigurationError(f"{source} cannot be used: {error}") from error
    if not all(value.isprintable() for value in (_token_of(loaded.token) or "", *(each for _, each in loaded.headers))):
        raise ConfigurationError(f"{source} has a token or a name that no HTTP header can have")
    return loaded


async def _with_credentials(loaded: Loaded, cluster: Cluster, user: User, pem: Pem) -> Loaded:
    """Add TLS and the credentials, in the order of client-go's `config.go` and `round_trippers.go`."""
    authority, certificate, _ = pem
    verifies = not cluster.get("insecure-skip-tls-verify")
    if authority and not verifies:
        raise ConfigurationError("the cluster has a certificate authority beside insecure-skip-tls-verify")
    loaded = loaded._replace(verifies=verifies, tls_server_name=cluster.get("tls-server-name", ""))
    if loaded.server.login:
        loaded.token.api_key["BearerToken"] = loaded.server.login
        return loaded
    login = _login(user)
    if "exec" in user and not login and not certificate:
        status = await run_plugin(user["exec"], cluster, authority)
        login = {"token": status.token} if status.token else {}
        pair = ((each or "").encode() for each in (status.client_certificate_data, status.client_key_data))
        loaded = loaded._replace(certificates=Certificates(loaded.certificates.authority, *pair))
    if login:
        await _authorize(loaded, login)
    return loaded


def _login(user: User) -> dict[str, Any]:
    """Return the one way to log in that counts, as a user of a kubeconfig. A token in a file wins."""
    if path := user.get("tokenFile"):
        try:
            return {"token": read_file(path).decode(errors="replace").strip()}
        except ConfigurationError:
            if not user.get("token"):
                raise
    if token := user.get("token"):
        return {"token": token}
    if name := user.get("username"):
        return {"username": name, "password": user.get("password", "")}
    if provider := user.get("auth-provider"):
        # kubernetes_asyncio would send the refresh token to a server whose certificate it does not verify.
        config = {name: value for name, value in provider.get("config", {}).items() if name != "refresh-token"}
        return {"auth-provider": {**provider, "config": config}}
    return {}


async def _authorize(loaded: Loaded, login: dict[str, Any]) -> None:
    parts = {"cluster": {"server": loaded.server.url}, "user": login, "context": {"cluster": "a", "user": "a"}}
    config = {f"{part}s": [{"name": "a", part: content}] for part, content in parts.items()}
    try:
        await kube_config.load_kube_config_from_dict(config, context="a", client_configuration=loaded.token)
    except Exception as error:
        raise ConfigurationError(f"the ID token cannot be used, a call of kubectl renews it: {error}") from error


def _impersonation(user: User) -> Iterator[tuple[str, str]]:
    extra = user.get("as-user-extra", {})
    values = {
        "User": [user.get("as")],
        "Uid": [user.get("as-uid")],
        "Group": user.get("as-groups", ()),
        **{f"Extra-{quote(key, safe=HEADER)}": extra[key] for key in extra},
    }
    return ((f"Impersonate-{name}", each) for name in values for each in values[name] if each)


def _token_of(configuration: Any) -> str | None:
    """Return the token with its scheme, such as "Bearer ...", or None. A token file often ends with a newline."""
    token: str = configuration.api_key.get("BearerToken") or ""
    return token.strip() or None
