"""The API server's audit log. It has one line for each request that the server answered.

The server writes the line of a request together with the response. A client can read its response a moment before the
line is in the log. A watch gets its line when the watch ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, field

POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {"level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*"]},
        {"level": "None", "users": ["system:apiserver"]},
        {"level": "Metadata"},
    ],
}
"""One line for each request, without bodies. Health checks and the server's requests to itself are left out."""


_CREDENTIAL: Final = "authentication.kubernetes.io/credential-id"
_DECISION: Final = "authorization.k8s.io/decision"


class _User(Struct, frozen=True):
    username: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class _ObjectRef(Struct, frozen=True, rename="camel"):
    api_group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class _Status(Struct, frozen=True):
    code: int = 0


class AuditRecord(Struct, frozen=True, kw_only=True, rename="camel"):
    """One request and its result. `verb` is the Kubernetes verb: get, list, watch, create, patch, delete ..."""

    verb: str
    request_uri: str = field(name="requestURI")
    stage: str = ""
    user: _User = _User()
    user_agent: str = ""
    object_ref: _ObjectRef = _ObjectRef()
    response_status: _Status = _Status()
    annotations: Mapping[str, str] = field(default_factory=dict)
    request_received_timestamp: datetime
    stage_timestamp: datetime
    """When the request was answered. For a watch: when the watch ended."""

    @property
    def username(self) -> str:
        return self.user.username

    @property
    def credential(self) -> str:
        """The ID of the token or certificate that the request came with, or "" if it came with none.

        Two programs that run as the same user can be told apart by it.
        """
        return next(iter(self.user.extra.get(_CREDENTIAL, ())), "")

    @property
    def lacked_permission(self) -> bool:
        """True if no role allowed the request. A rejection by admission has the same status code but does not count
        here."""
        return self.annotations.get(_DECISION) == "forbid"

    @property
    def group(self) -> str:
        return self.object_ref.api_group

    @property
    def resource(self) -> str:
        return self.object_ref.resource

    @property
    def subresource(self) -> str:
        return self.object_ref.subresource

    @property
    def namespace(self) -> str:
        return self.object_ref.namespace

    @property
    def name(self) -> str:
        """The object's name; "" for a list, a watch and most creates."""
        return self.object_ref.name

    @property
    def code(self) -> int:
        return self.response_status.code


_decode = msgspec.json.Decoder(AuditRecord).decode


def read_records(log: Path, since: int = 0) -> Iterator[AuditRecord]:
    """Yield the records after this position in the log. An incomplete last line is skipped."""
    with log.open("rb") as lines:
        lines.seek(since)
        for line in lines:
            if line.endswith(b"\n"):
                yield _decode(line)
