"""This module has a blocking HTTP client for the API server of a sandbox. The client has administrator rights.

The sandbox uses the client to install CRDs and to check whether the control plane is ready.
"""

from __future__ import annotations

import json
import ssl
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException, HTTPResponse, HTTPSConnection, RemoteDisconnected
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml
from msgspec import Struct

TIMEOUT_S = 30.0
"""The default timeout of a network operation in seconds."""

BUSY_ANSWERS = 10
"""The number of answers "429 Too Many Requests" after which a request fails. client-go has the same limit."""


class Unanswered(Exception):
    """Raised if the server sends no response or an incomplete response."""


class Rejected(Exception):
    """Raised if the server answers with an error status.

    `str()` returns the server's message. `status` is the HTTP status code. `document` is the Status object in the
    response, or {} if the response contains no Status object.
    """

    def __init__(self, status: int, message: str, document: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.document = document or {}


class Answer(Struct, frozen=True):
    """A response of the server. `warnings` contains the value of each `Warning` header."""

    body: bytes
    warnings: tuple[str, ...] = ()


class Admin:
    """An HTTP client that uses the client certificate in the kubeconfig of a sandbox.

    Connections are reused, because a TLS handshake needs more CPU time than a small request. Several threads can use
    the client at the same time. Proxy settings of the environment are ignored, because the server is on loopback.
    """

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._host = urlsplit(cluster["server"]).netloc
        self._context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self._context.load_cert_chain(user["client-certificate"], user["client-key"])
        self._idle: list[HTTPSConnection] = []
        weakref.finalize(self, _close_all, self._idle)

    def send(
        self, method: str, path: str, body: bytes | None = None, content_type: str = "", *, timeout_s: float = TIMEOUT_S
    ) -> bytes:
        """Send one request and return the body of the response. Raises Unanswered or Rejected."""
        return self.ask(method, path, body, content_type, timeout_s=timeout_s).body

    def get(self, path: str, *, timeout_s: float = TIMEOUT_S) -> Any:
        return json.loads(self.send("GET", path, timeout_s=timeout_s))

    def ask(
        self, method: str, path: str, body: bytes | None = None, content_type: str = "", *, timeout_s: float = TIMEOUT_S
    ) -> Answer:
        """Send one request and return the response. Raises Unanswered or Rejected.

        While a server is busy or starting, it answers 429 with the header Retry-After. The request is then repeated.
        """
        headers = {"Content-Type": content_type} if content_type else {}
        for _ in range(BUSY_ANSWERS):
            response, content = self._once(method, path, body, headers, timeout_s)
            pause = response.headers.get("Retry-After", "")
            if response.status != 429 or not pause.isdigit():
                break
            time.sleep(int(pause))
        if response.status >= 400:
            raise _rejection(response.status, content, response.reason)
        return Answer(content, tuple(response.headers.get_all("Warning") or ()))

    def _once(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], timeout_s: float
    ) -> tuple[HTTPResponse, bytes]:
        """Send the request once. Return the response and its body. Raises Unanswered."""
        try:
            connection, response = self._response(method, path, body, headers, timeout_s)
            with _closed_on_failure(connection):
                content = response.read()
        except (OSError, HTTPException) as error:
            raise Unanswered(str(error)) from error
        if response.will_close:
            connection.close()
        else:
            self._idle.append(connection)
        return response, content

    def _response(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], timeout_s: float
    ) -> tuple[HTTPSConnection, HTTPResponse]:
        """Send the request and return the connection and the response. The caller must read the body of the response.

        Raises OSError or HTTPException if the server does not answer.
        """
        while self._idle:
            connection = self._idle.pop()
            connection.sock.settimeout(timeout_s)
            try:
                return connection, _exchange(connection, method, path, body, headers)
            except (RemoteDisconnected, ConnectionResetError, BrokenPipeError, ssl.SSLEOFError):
                # The server closed this idle connection, for example because the server was restarted.
                continue
        connection = HTTPSConnection(self._host, timeout=timeout_s, context=self._context)
        return connection, _exchange(connection, method, path, body, headers)


def _exchange(
    connection: HTTPSConnection, method: str, path: str, body: bytes | None, headers: dict[str, str]
) -> HTTPResponse:
    with _closed_on_failure(connection):
        connection.request(method, path, body, headers)
        return connection.getresponse()


@contextmanager
def _closed_on_failure(connection: HTTPSConnection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise


def _close_all(connections: list[HTTPSConnection]) -> None:
    for connection in connections:
        connection.close()


def _rejection(status: int, content: bytes, reason: str) -> Rejected:
    text = content.decode(errors="replace")
    try:
        document = json.loads(text)
        return Rejected(status, str(document["message"]), document)
    except (ValueError, KeyError, TypeError):
        return Rejected(status, text or reason)
