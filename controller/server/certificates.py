"""The certificate of the HTTPS server. The certificate is read from files, or it is self-signed.

The server looks for a newer certificate at each new connection. While only one of the two files has been replaced, the
previous pair stays in use, and a warning is logged. A self-signed certificate exists only in memory.
"""

import ctypes
import ipaddress
import os
import socket
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, TypeAlias

import structlog

log = structlog.get_logger()

MFD_CLOEXEC: Final = 1

VALID_FOR = timedelta(days=365)
RENEWED_AFTER = timedelta(days=180)
CLOCK_SKEW = timedelta(hours=1)
"""A self-signed certificate is valid this long before its creation, for clients with a slow clock."""


class CertificateError(Exception):
    """The certificate cannot be loaded or created. `str()` is one line with the reason."""


class FileCertificate:
    """A certificate, followed by its intermediate certificates, and its private key, from two PEM files."""

    def __init__(self, certificate: str, key: str) -> None:
        self._certificate = Path(certificate)
        self._key = Path(key)

    def stamp(self) -> object:
        return _file_stamp(self._certificate), _file_stamp(self._key)

    def load_into(self, context: ssl.SSLContext) -> object:
        stamp = self.stamp()
        for path in (self._certificate, self._key):
            try:
                path.read_bytes()
            except OSError as error:
                why = os.strerror(error.errno).lower() if error.errno else str(error)
                raise CertificateError(f"cannot read {path}: {why}") from error
        try:
            # With an empty password, an encrypted key fails to load. If no password is given, OpenSSL asks for
            # one on the terminal.
            context.load_cert_chain(self._certificate, self._key, password="")
        except (OSError, ValueError) as error:
            why = getattr(error, "reason", None) or "not PEM, or the key has a password"
            reason = str(why).replace("_", " ").lower()
            message = f"{self._certificate} and {self._key} are not a certificate and its key: {reason}"
            raise CertificateError(message) from error
        return stamp


def _file_stamp(path: Path) -> object:
    """Return a value that changes with the file, also with the link in a mounted Secret, or an error number."""
    try:
        status = path.stat()
    except OSError as error:
        return error.errno
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


class SelfSignedCertificate:
    """Each call of `load_into` creates a new one. The function `now` returns the wall-clock time."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._made_at: datetime | None = None

    def stamp(self) -> object:
        if self._made_at is not None and self._now() - self._made_at >= RENEWED_AFTER:
            self._made_at = None
        return self._made_at

    def load_into(self, context: ssl.SSLContext) -> object:
        now = self._now()
        with _as_file(_self_signed(now)) as path:
            context.load_cert_chain(path)
        self._made_at = now
        return now


Certificate: TypeAlias = FileCertificate | SelfSignedCertificate
"""A certificate and its key. `load_into` loads them into a TLS context, or raises CertificateError.

`stamp` changes when there is a new certificate. It is called for each connection, so it must be fast. `load_into`
returns the stamp from before the load, so a change during the load is not lost.
"""


class ServerTls:
    """The TLS `context` of a server, with the newest certificate for each connection. Raises CertificateError."""

    def __init__(self, certificate: Certificate) -> None:
        self._certificate = certificate
        self._stamp, self.context = self._loaded()
        self._newest = self.context
        # OpenSSL calls this function before it sends the certificate of a connection. It does so even if the client
        # sends no host name.
        self.context.sni_callback = self._use_newest

    def _use_newest(
        self, connection: ssl.SSLObject | ssl.SSLSocket, _host: str | None, _context: ssl.SSLContext
    ) -> None:
        if self._certificate.stamp() != self._stamp:
            self._renew()
        connection.context = self._newest

    def _renew(self) -> None:
        self._stamp = self._certificate.stamp()
        try:
            self._stamp, self._newest = self._loaded()
        except CertificateError as error:
            log.warning("cannot load the changed certificate, the previous one stays in use", why=str(error))
        else:
            log.info("now serving the changed certificate")

    def _loaded(self) -> tuple[object, ssl.SSLContext]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        return self._certificate.load_into(context), context


@contextmanager
def _as_file(pem: bytes) -> Iterator[str]:
    """Yield the path of a file, in memory if possible, because the `ssl` module loads certificates only from files."""
    # Standalone builds of Python lack `os.memfd_create`.
    create = getattr(os, "memfd_create", None) or getattr(ctypes.CDLL(None), "memfd_create", None)
    in_memory = os.fdopen(create(b"certificate", MFD_CLOEXEC), "wb") if create is not None else None
    with in_memory or tempfile.NamedTemporaryFile() as file:
        file.write(pem)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}" if in_memory else file.name


def _self_signed(now: datetime) -> bytes:
    """Return a new private key and a self-signed certificate with this key, both as PEM. Raises CertificateError."""
    # The library `cryptography` is large, so it is imported only if a self-signed certificate is needed.
    try:
        from cryptography import x509  # noqa: PLC0415
        from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    except ImportError as error:
        message = "a self-signed certificate needs a package that is not installed (pip install 'vmherd[secure]')"
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
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + VALID_FOR)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return key_pem + certificate.public_bytes(serialization.Encoding.PEM)
