"""The answers of a busy server. A small HTTPS server gives each answer in turn."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from sandbox import admin
from sandbox.admin import Admin, Rejected, Unanswered
from sandbox.pki import Pki
from tests.informers.faultserver import write_kubeconfig


@contextmanager
def server(
    directory: Path, answers: list[tuple[int, dict[str, str]]], requests: list[str] | None = None
) -> Iterator[Admin]:
    """Answer the requests with `answers`, in this order, and yield a client of the server.

    An answer is a status and headers. After the last answer, the server closes each connection without an answer.
    `requests` gets the methods of the requests.
    """

    seen = requests if requests is not None else []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.command)
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if not answers:
                self.close_connection = True
                return
            status, headers = answers.pop(0)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": "2"}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"{}")

        do_POST = do_PATCH = do_GET

        def log_message(self, *_: object) -> None:
            pass

    pki = Pki(directory)
    identity, user = pki.server(), pki.client("admin")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    httpd = HTTPServer(("127.0.0.1", 0), Handler)
    httpd.socket = context.wrap_socket(httpd.socket, server_side=True)
    threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    url, trusted = f"https://127.0.0.1:{httpd.server_port}", {"certificate-authority": str(pki.ca)}
    credentials = {"client-certificate": str(user.certificate), "client-key": str(user.key)}
    kubeconfig = write_kubeconfig(directory / "kubeconfig", url, credentials, **trusted)
    try:
        yield Admin(kubeconfig)
    finally:
        httpd.shutdown()
        httpd.server_close()


@pytest.mark.parametrize("method", ["GET", "PATCH", "POST"])
def test_a_request_is_repeated_while_the_server_asks_for_patience(tmp_path: Path, method: str) -> None:
    busy = (429, {"Retry-After": "0"})
    with server(tmp_path, [busy, busy, (200, {})]) as client:
        assert client.send(method, "/") == b"{}"


def test_a_refusal_without_retry_after_is_final(tmp_path: Path) -> None:
    with server(tmp_path, [(429, {}), (200, {})]) as client, pytest.raises(Rejected) as refused:
        client.get("/")
    assert refused.value.status == 429


def test_a_server_that_stays_busy_is_given_up(tmp_path: Path) -> None:
    answers = [(429, {"Retry-After": "0"})] * (admin.BUSY_ANSWERS + 1)
    with server(tmp_path, answers) as client, pytest.raises(Rejected):
        client.get("/")
    assert len(answers) == 1


@pytest.mark.parametrize(("method", "sent"), [("GET", 2), ("PATCH", 2), ("POST", 1)])
def test_only_a_create_is_not_repeated_after_a_lost_answer(tmp_path: Path, method: str, sent: int) -> None:
    requests: list[str] = []
    with server(tmp_path, [], requests) as client, pytest.raises(Unanswered):
        client.send(method, "/")
    assert requests == [method] * sent
