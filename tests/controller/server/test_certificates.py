import os
import socket
import ssl
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from structlog.testing import capture_logs

from controller.server.certificates import (
    RENEWED_AFTER,
    VALID_FOR,
    CertificateError,
    FileCertificate,
    SelfSignedCertificate,
    ServerTls,
)
from tests.fakes.virtual_time import Clock
from tests.programs import finished

START = datetime(2026, 1, 1, tzinfo=UTC)


class Files:
    """A certificate and its key on disk, in the form of a mounted Secret."""

    def __init__(self, directory: Path) -> None:
        self.authority = trustme.CA()
        self.certificate, self.key = directory / "tls.crt", directory / "tls.key"
        self.issue("first.example")

    def issue(self, host: str) -> trustme.LeafCert:
        issued = self.authority.issue_cert(host)
        self.write(issued)
        return issued

    def write(self, issued: trustme.LeafCert) -> None:
        self.certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        self.key.write_bytes(issued.private_key_pem.bytes())

    @property
    def source(self) -> FileCertificate:
        return FileCertificate(str(self.certificate), str(self.key))


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def served_by(tls: ServerTls, host: str | None = "any.example") -> x509.Certificate:
    ours, theirs = socket.socketpair()

    def serve() -> None:
        with tls.context.wrap_socket(ours, server_side=True) as connection:
            connection.recv(1)

    server = threading.Thread(target=serve)
    server.start()
    client = ssl.create_default_context()
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    with client.wrap_socket(theirs, server_hostname=host) as connection:
        connection.settimeout(10)
        connection.sendall(b"x")
        found = connection.getpeercert(binary_form=True)
    server.join(10)
    assert found is not None
    return x509.load_der_x509_certificate(found)


def names_of(certificate: x509.Certificate) -> list[str]:
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in found]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_connection_after_a_change_gets_the_new_certificate_in_each_version_of_tls(
    files: Files, version: ssl.TLSVersion
):
    tls = ServerTls(files.source)
    tls.context.maximum_version = version
    assert names_of(served_by(tls)) == ["first.example"]
    files.issue("second.example")
    assert names_of(served_by(tls)) == ["second.example"]
    assert names_of(served_by(tls, host=None)) == ["second.example"], "also without a host name"


def test_a_change_of_a_symbolic_link_is_noticed(tmp_path: Path):
    """The kubelet updates a mounted Secret in this way: the paths stay, and a symbolic link gets a new target."""
    for version in ("one", "two"):
        (tmp_path / version).mkdir()
    Files(tmp_path / "one").issue("one.example")
    Files(tmp_path / "two").issue("two.example")
    (tmp_path / "data").symlink_to("one")
    tls = ServerTls(FileCertificate(str(tmp_path / "data/tls.crt"), str(tmp_path / "data/tls.key")))
    assert names_of(served_by(tls)) == ["one.example"]
    (tmp_path / "next").symlink_to("two")
    (tmp_path / "next").replace(tmp_path / "data")
    assert names_of(served_by(tls)) == ["two.example"]


def test_a_half_replaced_pair_is_not_served_and_the_complete_pair_is(files: Files):
    tls = ServerTls(files.source)
    new = files.authority.issue_cert("second.example")
    files.certificate.write_bytes(new.cert_chain_pems[0].bytes())
    with capture_logs() as lines:
        assert names_of(served_by(tls)) == ["first.example"]
        assert names_of(served_by(tls)) == ["first.example"]
    assert [line["event"] for line in lines] == ["cannot load the changed certificate, the previous one stays in use"]
    assert "key values mismatch" in lines[0]["why"]
    files.write(new)
    assert names_of(served_by(tls)) == ["second.example"]


def test_deleted_files_leave_the_certificate_in_use(files: Files):
    tls = ServerTls(files.source)
    files.key.unlink()
    assert names_of(served_by(tls)) == ["first.example"]


def test_a_certificate_is_loaded_again_only_if_it_has_changed_also_during_a_load(files: Files):
    loads = 0

    class Swapping(FileCertificate):
        def load_into(self, context: ssl.SSLContext) -> object:
            nonlocal loads
            loads += 1
            stamp = super().load_into(context)
            if loads == 1:
                files.issue("second.example")
            return stamp

    tls = ServerTls(Swapping(str(files.certificate), str(files.key)))
    for _ in range(3):
        assert names_of(served_by(tls)) == ["second.example"]
    assert loads == 2


def test_a_missing_file_is_named(files: Files):
    files.key.unlink()
    with pytest.raises(CertificateError, match=rf"^cannot read {files.key}: no such file or directory$"):
        ServerTls(files.source)


@pytest.mark.parametrize("wrong", ["the key of another certificate", "not PEM"])
def test_files_that_are_not_a_certificate_and_its_key_are_rejected(files: Files, wrong: str):
    if wrong == "not PEM":
        files.certificate.write_text("hello")
    else:
        files.key.write_bytes(files.authority.issue_cert("other.example").private_key_pem.bytes())
    why = "" if wrong == "not PEM" else "key values"
    with pytest.raises(CertificateError, match=rf"tls\.crt and .*tls\.key are not a certificate and its key: {why}"):
        ServerTls(files.source)


def test_a_key_with_a_password_is_rejected_without_a_prompt(files: Files):
    key = serialization.load_pem_private_key(files.key.read_bytes(), None)
    files.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    names = f"{str(files.certificate)!r}, {str(files.key)!r}"
    serve = f"from controller.server.certificates import *; ServerTls(FileCertificate({names}))"
    ours, theirs = os.openpty()
    done = finished(
        [sys.executable, "-c", f"import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY); {serve}"],
        stdin=theirs,
        start_new_session=True,
        within_s=30,
    )
    os.close(ours)
    os.close(theirs)
    assert "CertificateError" in done.stderr


def test_a_self_signed_certificate_names_this_host():
    certificate = served_by(ServerTls(SelfSignedCertificate(lambda: START)))
    assert {socket.gethostname(), "localhost", "127.0.0.1", "::1"} == set(names_of(certificate))
    assert certificate.not_valid_before_utc < START
    assert certificate.not_valid_after_utc == START + VALID_FOR


def test_a_self_signed_certificate_is_renewed_before_it_expires_and_kept_until_then():
    clock = Clock(START)
    tls = ServerTls(SelfSignedCertificate(clock))
    first = served_by(tls)
    clock.now += RENEWED_AFTER - timedelta(seconds=1)
    assert served_by(tls).serial_number == first.serial_number
    clock.now += timedelta(seconds=1)
    second = served_by(tls)
    assert second.not_valid_after_utc == clock.now + VALID_FOR
    assert served_by(tls).serial_number == second.serial_number


def test_the_key_of_a_self_signed_certificate_is_not_written_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "there-is-no-such-directory"))
    served_by(ServerTls(SelfSignedCertificate(lambda: START)))
