"""A blocking HTTP client for the API server of a sandbox, with administrator rights."""

import json
import ssl
from pathlib import Path
from typing import Any

import yaml
from urllib3 import BaseHTTPResponse, PoolManager, Retry
from urllib3.exceptions import HTTPError, ProtocolError

TIMEOUT_S = 30.0
BUSY_ANSWERS = 10
"""The number of answers "429 Too Many Requests" after which a request fails. client-go has the same limit."""

CONNECTIONS = 32
APPLY = "application/apply-patch+yaml"
AS_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


class Unanswered(Exception):
    """Raised if the server sends no response or an incomplete response."""


class Rejected(Exception):
    """The server answered with an error `status`. `document` is the Status object in the answer, or {} without one."""

    def __init__(self, status: int, message: str, document: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.document = document or {}


class _Patience(Retry):
    """While a server is busy or starting, it answers 429 with the header Retry-After. The request is then repeated."""

    RETRY_AFTER_STATUS_CODES = frozenset({429})


_PATIENCE = _Patience(
    BUSY_ANSWERS - 1,
    allowed_methods=None,  # a server that answers 429 has not done anything
    connect=False,
    read=False,
    other=0,
    redirect=False,
    raise_on_status=False,
)


class Admin:
    """An HTTP client with the certificate of a kubeconfig, without proxies, for several threads."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._server = cluster["server"]
        context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        context.load_cert_chain(user["client-certificate"], user["client-key"])
        self._pool = PoolManager(ssl_context=context, maxsize=CONNECTIONS, retries=_PATIENCE)

    def send(
        self, method: str, path: str, body: bytes | None = None, content_type: str = "", *, timeout_s: float = TIMEOUT_S
    ) -> bytes:
        """Send one request and return the body of the response. Raises Unanswered or Rejected."""
        return self.ask(method, path, body, content_type, timeout_s=timeout_s).data

    def get(self, path: str, *, timeout_s: float = TIMEOUT_S) -> Any:
        return json.loads(self.send("GET", path, timeout_s=timeout_s))

    def table(self, path: str, *, timeout_s: float = TIMEOUT_S) -> Any:
        """Return the objects of a list as a Table, which has the cells of `kubectl get`."""
        return json.loads(self.ask("GET", path, accept=AS_TABLE, timeout_s=timeout_s).data)

    def create(self, path: str, document: dict[str, Any]) -> None:
        self.send("POST", path, json.dumps(document).encode(), "application/json")

    def patch(self, path: str, change: object, kind: str = "merge") -> None:
        self.send("PATCH", path, json.dumps(change).encode(), f"application/{kind}-patch+json")

    def apply(self, path: str, document: dict[str, Any]) -> None:
        """Apply an object with server-side apply. A second call changes nothing. Raises Unanswered or Rejected."""
        self.send("PATCH", f"{path}?fieldManager=vmherd-sandbox&force=true", json.dumps(document).encode(), APPLY)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        content_type: str = "",
        *,
        accept: str = "*/*",
        timeout_s: float = TIMEOUT_S,
    ) -> BaseHTTPResponse:
        """Send one request and return the response. Raises Unanswered or Rejected."""
        headers = {"Accept": accept} | ({"Content-Type": content_type} if content_type else {})

        def once() -> BaseHTTPResponse:
            return self._pool.request(method, self._server + path, body=body, headers=headers, timeout=timeout_s)

        try:
            try:
                response = once()
            except ProtocolError:
                # The server closed an idle connection in this moment, for example because the server was restarted. A
                # POST may have created its object, so only the caller can decide about a second one.
                if method == "POST":
                    raise
                response = once()
        except HTTPError as error:
            raise Unanswered(str(error)) from error
        if response.status >= 400:
            raise _rejection(response.status, response.data, response.reason or "")
        return response


def _rejection(status: int, content: bytes, reason: str) -> Rejected:
    text = content.decode(errors="replace")
    try:
        document = json.loads(text)
        return Rejected(status, str(document["message"]), document)
    except (ValueError, KeyError, TypeError):
        return Rejected(status, text or reason)
