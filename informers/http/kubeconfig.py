"""This module reads kubeconfigs as kubectl does, and chooses one cluster and one user.

The rules are those of client-go, package `clientcmd`: `loader.go` merges files, `client_config.go` chooses and applies
flags, and `validation.go` checks. Each function raises ConfigurationError for a kubeconfig that kubectl refuses. No
message contains a value of a cluster or a user, because it can be a secret.
"""

import os
import posixpath
import re
import ssl
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final, NamedTuple, TypeAlias, TypedDict
from urllib.parse import unquote, urlsplit

import msgspec
import yaml
from msgspec import Struct, field

EXEC: Final = "client.authentication.k8s.io"
MAX_LENGTH: Final = 600
IMPERSONATION: Final = ("as", "as-uid", "as-groups", "as-user-extra")

_Named = TypedDict("_Named", {"name": str, "value": str, "extension": Any}, total=False)  # noqa: UP013
Exec = TypedDict("Exec", {  # noqa: UP013
    "command": str, "args": list[str], "env": list[_Named], "apiVersion": str, "provideClusterInfo": bool,
    "interactiveMode": str,
}, total=False)  # fmt: skip
Cluster = TypedDict("Cluster", {
    "server": str, "tls-server-name": str, "insecure-skip-tls-verify": bool, "certificate-authority": str,
    "certificate-authority-data": bytes, "proxy-url": str, "disable-compression": bool, "extensions": list[_Named],
}, total=False)  # fmt: skip
_AuthProvider = TypedDict("_AuthProvider", {"name": str, "config": dict[str, str]}, total=False)  # noqa: UP013
User = TypedDict("User", {
    "client-certificate": str, "client-certificate-data": bytes, "client-key": str, "client-key-data": bytes,
    "token": str, "tokenFile": str, "username": str, "password": str, "auth-provider": _AuthProvider, "exec": Exec,
    "as": str, "as-uid": str, "as-groups": list[str], "as-user-extra": dict[str, list[str]],
}, total=False)  # fmt: skip
Context = TypedDict("Context", {"cluster": str, "user": str, "namespace": str}, total=False)  # noqa: UP013


class ConfigurationError(Exception):
    """The cluster's address or the credentials could not be loaded. `str(error)` is one line for users."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split())[:MAX_LENGTH])


class NoKubeconfig(ConfigurationError):
    """No kubeconfig exists at the chosen path."""


class _Entry(Struct, frozen=True):
    """One entry of a section. An entry of `clusters` has a cluster, and so on."""

    name: str = ""
    cluster: Cluster = {}
    user: User = {}
    context: Context = {}


_Section: TypeAlias = tuple[_Entry, ...]


class _Document(Struct, frozen=True, rename="kebab"):
    api_version: str = field(name="apiVersion", default="v1")
    kind: str = "Config"
    clusters: _Section = ()
    users: _Section = ()
    contexts: _Section = ()
    current_context: str = ""


class Overrides(NamedTuple):
    """The values of kubectl's flags with these names. An empty value changes nothing."""

    context: str = ""
    cluster: str = ""
    user: str = ""
    server: str = ""
    token: str = ""
    as_user: str = ""
    as_groups: Sequence[str] = ()
    as_uid: str = ""
    tls_server_name: str = ""
    certificate_authority: str = ""
    insecure_skip_tls_verify: bool = False
    client_certificate: str = ""
    client_key: str = ""


class Chosen(NamedTuple):
    """The cluster, the user and the namespace of one context. A field that is absent or empty is not set."""

    cluster: Cluster
    user: User
    namespace: str = ""

    @property
    def has_credentials(self) -> bool:
        return any(value for name, value in self.user.items() if name not in IMPERSONATION)

    @property
    def impersonation(self) -> User:
        return {name: value for name, value in self.user.items() if name in IMPERSONATION}  # type: ignore[return-value]

    def with_overrides(self, overrides: Overrides) -> "Chosen":
        """Return the choice with the flags. A token replaces all credentials. Raise ConfigurationError.

        As in client-go, an authority and insecure-skip-tls-verify replace each other, and a server has no
        tls-server-name of the kubeconfig.
        """
        cluster, user, namespace = self
        if overrides.server:
            cluster = {**cluster, "server": overrides.server, "tls-server-name": ""}
        if overrides.tls_server_name:
            cluster = {**cluster, "tls-server-name": overrides.tls_server_name}
        if overrides.certificate_authority or overrides.insecure_skip_tls_verify:
            cluster = {
                **cluster,
                "insecure-skip-tls-verify": overrides.insecure_skip_tls_verify,
                "certificate-authority": overrides.certificate_authority,
                "certificate-authority-data": b"",
            }
        if overrides.token:
            user = {**self.impersonation, "token": overrides.token}
        if overrides.client_certificate:
            user = {**user, "client-certificate": overrides.client_certificate, "client-certificate-data": b""}
        if overrides.client_key:
            user = {**user, "client-key": overrides.client_key, "client-key-data": b""}
        if overrides.as_uid:
            user = {**user, "as-uid": overrides.as_uid}
        if overrides.as_user:
            user = {**user, "as": overrides.as_user}
        if overrides.as_groups:
            user = {**user, "as-groups": list(overrides.as_groups)}
        changed = Chosen(cluster, user, namespace)
        for fault in _faults(changed):
            raise ConfigurationError(fault)
        return changed


def read_kubeconfig(paths: Sequence[Path], overrides: Overrides) -> Chosen:
    """Read, merge and choose. The first entry of a name, and the first current-context, counts. Paths are absolute."""
    source = os.pathsep.join(map(str, paths))
    files = {path: document for path in paths if (document := _read(path)) is not None}
    if not files:
        raise NoKubeconfig(f"no kubeconfig at {source}: set --kubeconfig or KUBECONFIG to an existing file")
    try:
        return _choose(files, overrides)
    except ConfigurationError as error:
        raise ConfigurationError(f"kubeconfig {source} cannot be used: {error}") from error


def mode_of(plugin: Exec) -> str:
    """Return Never, IfAvailable or Always. Only the version v1beta1 has a default."""
    return plugin.get("interactiveMode") or ("IfAvailable" if plugin.get("apiVersion") == f"{EXEC}/v1beta1" else "")


def _read(path: Path) -> _Document | None:
    try:
        content = _without_nulls(next(yaml.safe_load_all(path.read_bytes()), None))
        document = msgspec.convert({} if content is None else content, _Document)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(f"kubeconfig {path} cannot be read: {error.strerror}") from error
    except yaml.MarkedYAMLError as error:
        # The text of this error would quote the line, which can have a token.
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise ConfigurationError(f"kubeconfig {path} is not YAML: line {line}: {error.problem}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        why = error if isinstance(error, msgspec.ValidationError) else type(error).__name__
        raise ConfigurationError(f"{path} is not a valid kubeconfig: {why}") from error
    if (document.api_version, document.kind) != ("v1", "Config"):
        raise ConfigurationError(f"{path} is not a valid kubeconfig: it has another kind or version than Config v1")
    return document


def _without_nulls(value: Any) -> Any:
    """Return the value without the fields that are null. In Go, such a field is as if it were absent."""
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return value


def _choose(files: Mapping[Path, _Document], overrides: Overrides) -> Chosen:
    contexts, clusters, users = (_merged(files, section) for section in ("contexts", "clusters", "users"))
    name = overrides.context or next((each.current_context for each in files.values() if each.current_context), "")
    if name and name not in contexts:
        raise ConfigurationError(f'context "{name}" does not exist (contexts: {", ".join(contexts) or "none"})')
    context = contexts[name].context if name else {}
    cluster, user = overrides.cluster or context.get("cluster", ""), overrides.user or context.get("user", "")
    if cluster not in clusters and (overrides.cluster or not overrides.server):
        raise ConfigurationError(f'cluster "{cluster}" does not exist' if cluster else "it names no cluster to use")
    if overrides.user and user not in users:
        raise ConfigurationError(f'user "{user}" does not exist')
    found = Chosen(
        clusters.get(cluster, _Entry()).cluster, users.get(user, _Entry()).user, context.get("namespace", "")
    )
    return found.with_overrides(overrides)


def _merged(files: Mapping[Path, _Document], section: str) -> Mapping[str, _Entry]:
    merged: dict[str, _Entry] = {}
    for path, document in files.items():
        entries: _Section = getattr(document, section)
        found = {each.name: each for each in entries}
        if len(found) < len(entries):
            raise ConfigurationError(f"two {section} of {path} have the same name")
        for name, entry in found.items():
            if name not in merged:
                merged[name] = _resolved(entry, path.absolute().parent)
    return merged


def _resolved(entry: _Entry, folder: Path) -> _Entry:
    """Return the entry with absolute paths. The folder has the file of the entry."""

    def absolute(values: Any, *fields: str) -> Any:
        return {**values, **{name: str(folder / values[name]) for name in fields if values.get(name)}}

    user = absolute(entry.user, "client-certificate", "client-key", "tokenFile")
    if os.sep in user.get("exec", {}).get("command", ""):
        # The name of a command without a slash is looked up in PATH.
        user["exec"] = absolute(user["exec"], "command")
    return _Entry(entry.name, absolute(entry.cluster, "certificate-authority"), user, entry.context)


def _faults(chosen: Chosen) -> Iterator[str]:
    """Yield what kubectl refuses. `validation.go` is the source."""
    cluster, user, _ = chosen
    if cluster.get("certificate-authority") and cluster.get("certificate-authority-data"):
        yield "certificate-authority and certificate-authority-data are both set"
    certificates = [bool(user.get("client-certificate")), bool(user.get("client-certificate-data"))]
    keys = [bool(user.get("client-key")), bool(user.get("client-key-data"))]
    if any(certificates) and [sum(certificates), sum(keys)] != [1, 1]:
        yield "a client certificate is one of client-certificate and client-certificate-data, with one key"
    token, token_file, name = user.get("token"), user.get("tokenFile"), user.get("username")
    if (token and (name or user.get("password"))) or (token_file and name):
        yield "a user can have a token or a password, not both"
    if (plugin := user.get("exec")) is not None:
        if not plugin.get("command") or not all(each.get("name") for each in plugin.get("env", ())):
            yield "exec has no command, or a variable without a name"
        if plugin.get("apiVersion") not in (f"{EXEC}/v1", f"{EXEC}/v1beta1"):
            yield f"apiVersion of exec has to be {EXEC}/v1 or {EXEC}/v1beta1"
        if mode_of(plugin) not in ("Never", "IfAvailable", "Always"):
            yield "interactiveMode of exec has to be Never, IfAvailable or Always"
    if (provider := user.get("auth-provider")) is not None and (plugin is not None or provider.get("name") != "oidc"):
        yield "the only auth-provider that works is oidc, and not beside exec"
    if not user.get("as") and any(chosen.impersonation.values()):
        yield "a group, a UID or extras cannot be impersonated without a user: set `as` or --as"


HOST: Final = re.compile(r"[\w.~-]++|[0-9A-Fa-f:.]++", re.ASCII)

Pem: TypeAlias = tuple[bytes, bytes, bytes]
"""An authority, a client's certificate and its key in PEM format, or b""."""


class Server(NamedTuple):
    """The `url` of an API server without a final slash, and the Authorization header `login` for its user, or ""."""

    url: str
    login: str = ""

    @property
    def is_encrypted(self) -> bool:
        """Only such a server gets credentials."""
        return self.url.startswith("https:")


def parse_server(address: str, source: str) -> Server:
    """Read an address such as `HTTPS://host:6443/path/` without its query. Raise ConfigurationError."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port
        is_valid = parts.scheme in ("http", "https") and HOST.fullmatch(host) and port != 0 and address.isprintable()
    except ValueError:
        is_valid = False
    if not is_valid:
        # A part of the address can be a password.
        found = "this is not an address" if address else "it names no server"
        raise ConfigurationError(f"{source} has to name a server such as https://host:6443: {found}")
    where = (f"[{host}]" if ":" in host else host) + (f":{port}" if port else "")
    path = posixpath.normpath(f"/{parts.path.strip('/')}").rstrip("/")
    user, password = (unquote(each or "") for each in (parts.username, parts.password))
    login = f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}" if "@" in parts.netloc else ""
    return Server(f"{parts.scheme}://{where}{path}", login)


class Certificates(NamedTuple):
    """An authority, a client's certificate and its key. Each is a path, or PEM data, or empty."""

    authority: str | bytes = b""
    certificate: str | bytes = b""
    key: str | bytes = b""

    def read(self) -> Pem:
        """Raise ConfigurationError if a file cannot be read or is empty."""
        authority, certificate, key = (each if isinstance(each, bytes) else read_file(each) for each in self)
        return authority, certificate, key


def read_file(path: str) -> bytes:
    """Raise ConfigurationError if the file cannot be read or is empty."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    if not content.strip():
        raise ConfigurationError(f"{path} is empty")
    return content


def tls_context(pem: Pem, *, verifies: bool) -> ssl.SSLContext:
    """Without an authority, trust those of the system. Raise ConfigurationError if a certificate cannot be used."""
    authority, certificate, key = pem
    try:
        context = ssl.create_default_context(cadata=authority.decode("ascii", "ignore") or None)
        # The certificate authorities of clusters often lack the extensions that Python 3.13 requires.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        # As in Go, an authority need not be at the top of its chain.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if certificate:
            with NamedTemporaryFile() as file:
                file.write(certificate + b"\n" + key)
                file.flush()
                # Without a password, OpenSSL would ask the user for the password of an encrypted key.
                context.load_cert_chain(file.name, password="")
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"the certificates cannot be used: {error}") from error
    if not verifies:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
