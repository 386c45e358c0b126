"""The API server's audit log: every request that it answered, whoever sent it and whatever they say about it.

The line of a request is written when its answer is, so a client that has just read the answer may be a moment ahead of
the log. A watch gets its line when it ends.
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
"""One line for each request, without bodies. The server's requests to itself are nobody's doing."""


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
    """One request and how it was answered. `verb` is Kubernetes' own: get, list, watch, create, patch, delete ..."""

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
    """When it was answered, or, for a watch, when it ended."""

    @property
    def username(self) -> str:
        return self.user.username

    @property
    def credential(self) -> str:
        """Which token or certificate it came with: what tells two programs of one user apart; "" for nobody's."""
        return next(iter(self.user.extra.get(_CREDENTIAL, ())), "")

    @property
    def lacked_permission(self) -> bool:
        """Whether no role allowed it. What admission refuses has the same code, and is no matter of roles."""
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
    """What was written to the log from this position on, as far as the lines are whole."""
    with log.open("rb") as lines:
        lines.seek(since)
        for line in lines:
            if line.endswith(b"\n"):
                yield _decode(line)
