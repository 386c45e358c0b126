"""The address of an API server and its TLS context."""

import posixpath
import re
import ssl
from base64 import b64encode
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import unquote, urlsplit

from informers.http.kubeconfig import ConfigurationError

HOST: Final = re.compile(r"[\w.~-]++|[0-9A-Fa-f:.]++", re.ASCII)

Pem: TypeAlias = tuple[bytes, bytes, bytes]
"""An authority, a client's certificate and its key in PEM format, or b""."""


class Server(NamedTuple):
    """The address of an API server.

    `url` has the scheme `https` or `http`, the host and a path, without a slash at its end. `login` is the value of the
    Authorization header for the user in the address, or "".
    """

    url: str
    login: str = ""

    @property
    def is_encrypted(self) -> bool:
        """Only such a server gets credentials."""
        return self.url.startswith("https:")


def parse_server(address: str, source: str) -> Server:
    """Read an address such as `HTTPS://host:6443/path/`. Raise ConfigurationError if it is not valid.

    The query and the fragment are removed, as in kubectl. The source is for the message.
    """
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
