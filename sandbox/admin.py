"""A blocking HTTP client for a sandbox's API server, with administrator rights.

The sandbox uses it for setup and for readiness checks.
"""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any

import yaml

TIMEOUT_S = 30.0


class Unanswered(Exception):
    """The server sent no response, or the response was cut off."""


class Rejected(Exception):
    """The server answered with an error status. `str()` is the server's message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Admin:
    """Sends requests with the client certificate of a sandbox's kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._url: str = cluster["server"]
        context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        context.load_cert_chain(user["client-certificate"], user["client-key"])
        # The server is on loopback. Proxy settings of the environment must not apply.
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )

    def send(
        self, method: str, path: str, body: bytes | None = None, content_type: str = "", *, timeout_s: float = TIMEOUT_S
    ) -> bytes:
        """Send one request and return the body of the response. Raises Unanswered or Rejected."""
        request = urllib.request.Request(self._url + path, data=body, method=method)
        if content_type:
            request.add_header("Content-Type", content_type)
        try:
            with self._opener.open(request, timeout=timeout_s) as answer:
                content: bytes = answer.read()
                return content
        except urllib.error.HTTPError as error:
            raise Rejected(error.code, _message_of(error)) from error
        except (OSError, HTTPException) as error:
            raise Unanswered(str(error)) from error

    def get(self, path: str, *, timeout_s: float = TIMEOUT_S) -> Any:
        return json.loads(self.send("GET", path, timeout_s=timeout_s))


def _message_of(error: urllib.error.HTTPError) -> str:
    text = error.read().decode(errors="replace")
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text or error.reason
