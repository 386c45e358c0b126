"""The certificate of an HTTPS server: from files, or made here; the newest one for each connection.

Whether there is a newer one is looked at when somebody connects, so nothing has to run in the background. A
certificate and a key that do not fit together, as while one of the files is being replaced, are passed over: the pair
from before stays in use, and the log says so. A certificate that we make ourselves exists in memory alone, is renewed
long before it expires, and proves nothing but that the connection is encrypted: whoever scrapes has to be told not to
verify it.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

import structlog

log = structlog.get_logger()

VALID_FOR = timedelta(days=365)
RENEWED_AFTER = timedelta(days=180)
CLOCKS_DIFFER_BY = timedelta(hours=1)


class CertificateError(Exception):
    """There is no certificate to serve with. `str()` says why, in one line."""


class Certificate(Protocol):
    """Where certificate and key come from."""

    def stamp(self) -> object:
        """Equal to the one before for as long as there is nothing new to load. Must be quick."""

    def load_into(self, context: ssl.SSLContext) -> None:
        """Raises CertificateError."""


class FileCertificate:
    """A certificate, with the intermediate ones after it, and its key, each from a PEM file."""

    def __init__(self, certificate: str, key: str) -> None:
        self._certificate = Path(certificate)
        self._key = Path(key)

    def stamp(self) -> object:
        return _identity(self._certificate), _identity(self._key)

    def load_into(self, context: ssl.SSLContext) -> None:
        for path in (self._certificate, self._key):
            try:
                path.read_bytes()
            except OSError as error:
                why = os.strerror(error.errno).lower() if error.errno else str(error)
                raise CertificateError(f"cannot read {path}: {why}") from error
        try:
            # A key that wants a password must fail, and not ask for it on the terminal.
            context.load_cert_chain(self._certificate, self._key, password="")
        except (OSError, ValueError) as error:
            why = getattr(error, "reason", None) or "not PEM, or the key wants a password"
            words = str(why).replace("_", " ").lower()
            message = f"{self._certificate} and {self._key} are no certificate and its key: {words}"
            raise CertificateError(message) from error


def _identity(path: Path) -> object:
    """What a file is now: the links of a mounted Secret lead to another file after each change of it."""
    try:
        found = path.stat()
    except OSError as error:
        return error.errno
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class OwnCertificate:
    """A certificate that nobody else vouches for. `now` is the wall clock."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._made_at: datetime | None = None

    def stamp(self) -> object:
        if self._made_at is not None and self._now() - self._made_at >= RENEWED_AFTER:
            self._made_at = None
        return self._made_at

    def load_into(self, context: ssl.SSLContext) -> None:
        now = self._now()
        with _named(_self_signed(now)) as path:
            context.load_cert_chain(path)
        self._made_at = now


class ServerTls:
    """TLS for a server. `context` is what it listens with, for as long as it runs. Raises CertificateError."""

    def __init__(self, certificate: Certificate) -> None:
        self._certificate = certificate
        self.context = self._loaded()
        self._newest = self.context
        self._stamp = certificate.stamp()
        # Called for each connection, whether it names a host or not, before a certificate is sent.
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, _host: str | None, _context: ssl.SSLContext) -> None:
        stamp = self._certificate.stamp()
        if stamp != self._stamp:
            self._stamp = stamp
            self._renew()
        connection.context = self._newest

    def _renew(self) -> None:
        try:
            self._newest = self._loaded()
        except CertificateError as error:
            log.warning("the changed certificate is not used, the one before stays", why=str(error))
        else:
            # Loading one that we make changes what its stamp is.
            self._stamp = self._certificate.stamp()
            log.info("serving with a new certificate")

    def _loaded(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._certificate.load_into(context)
        return context


@contextmanager
def _named(pem: bytes) -> Iterator[str]:
    """A file with this in it, while the block runs: OpenSSL's only way in. In memory, where the system has that."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("certificate"), "wb") as file:
            file.write(pem)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(pem)
        file.flush()
        yield file.name


def _self_signed(now: datetime) -> bytes:
    """A key and a certificate for it, both as PEM."""
    # A heavy library, which only those load who give no certificate of their own.
    try:
        from cryptography import x509  # noqa: PLC0415
        from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    except ImportError as error:
        message = "making a certificate takes a package that is not installed (pip install 'vmherd[secure]')"
        raise CertificateError(message) from error

    host = socket.gethostname()
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host[:64])])
    names = [
        *(x509.DNSName(each) for each in dict.fromkeys((host, "localhost"))),
        *(x509.IPAddress(ipaddress.ip_address(each)) for each in ("127.0.0.1", "::1")),
    ]
    certificate = (
        x509.CertificateBuilder(issuer_name=name, subject_name=name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCKS_DIFFER_BY)
        .not_valid_after(now + VALID_FOR)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return secret + certificate.public_bytes(serialization.Encoding.PEM)
