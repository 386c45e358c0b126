"""Reads the audit log of the API server: a line for each answered request, and for each watch when it ends."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, field

POLICY: Final = Path(__file__).with_name("audit_policy.yaml")
_CREDENTIAL: Final = "authentication.kubernetes.io/credential-id"


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
    user: _User = _User()
    user_agent: str = ""
    object_ref: _ObjectRef = _ObjectRef()
    response_status: _Status = _Status()
    annotations: Mapping[str, str] = field(default_factory=dict)
    request_received_timestamp: datetime
    stage_timestamp: datetime
    """The time of the response. For a watch, the end of the watch."""

    @property
    def credential(self) -> str:
        """The ID of the token or certificate, or "". It distinguishes programs with the same user name."""
        return next(iter(self.user.extra.get(_CREDENTIAL, ())), "")

    username = property(attrgetter("user.username"))
    group = property(attrgetter("object_ref.api_group"))
    resource = property(attrgetter("object_ref.resource"))
    subresource = property(attrgetter("object_ref.subresource"))
    namespace = property(attrgetter("object_ref.namespace"))
    name = property(attrgetter("object_ref.name"))
    """The name of the object, or "" if the URL contains none, as for lists, watches and most creates."""

    code = property(attrgetter("response_status.code"))


_decode = msgspec.json.Decoder(AuditRecord).decode

_START = b'{"kind":"Event","apiVersion":"audit.k8s.io/'


def read_records(log: Path, since: int = 0) -> Iterator[AuditRecord]:
    """Yield the records of the log from position `since` (in bytes), but no incomplete ones.

    The last record of a killed server may be incomplete, and its line may go on with the first record of the next. The
    position may be in the middle of a line, because the server writes a line in pieces.
    """
    with log.open("rb") as lines:
        if since:
            lines.seek(since - 1)
            if not lines.readline().endswith(b"\n"):
                return  # the server is still writing this line
        for line in lines:
            if not line.endswith(b"\n"):
                return  # the rest of this line may arrive while the file is read
            yield _decode(line[max(0, line.rfind(_START)) :])
