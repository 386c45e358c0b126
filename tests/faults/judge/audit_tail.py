"""The audit log of a running control plane, read step by step and sorted by namespace."""

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, Final

import msgspec

from sandbox.audit import _START, AuditRecord
from tests.faults.judge.history import Request

_decode: Final = msgspec.json.Decoder(AuditRecord).decode


class AuditTail:
    """Reads each line of the log once. `requests` returns the requests of a namespace."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._read_to = 0
        self._requests: dict[str, list[Request]] = defaultdict(list)
        self._acts: Counter[str] = Counter()

    def read(self) -> None:
        """Read the lines that are new. An incomplete last line is read later."""
        with self._log.open("rb") as log:
            log.seek(self._read_to)
            lines, end, _rest = log.read().rpartition(b"\n")
        self._read_to += len(lines) + len(end)
        for line in lines.splitlines():
            # After the incomplete record of a killed server, the next record is in the same line.
            if request := request_of(_decode(line[max(0, line.rfind(_START)) :])):
                self._requests[request.namespace].append(request)
                self._acts[request.namespace] += request.ours and request.verb not in ("watch", "list")

    def requests(self, *namespaces: str) -> tuple[Request, ...]:
        """Return the requests in these namespaces, in the order in which the server received them."""
        found = [request for namespace in namespaces for request in self._requests.get(namespace, ())]
        return tuple(sorted(found, key=lambda each: each.time))

    def acts(self, namespace: str) -> int:
        """Return the number of the controller's requests in a namespace, except watches and lists."""
        return self._acts[namespace]

    def writes(self, namespace: str) -> list[Request]:
        """Return the controller's writes in a namespace, dry runs included and Events left out."""
        requests = (each for each in self._requests.get(namespace, ()) if each.ours and each.resource != "events")
        return [each for each in requests if each.verb not in ("get", "list", "watch")]

    def forget(self, namespace: str) -> None:
        self._requests.pop(namespace, None)
        self._acts.pop(namespace, None)


def request_of(record: AuditRecord) -> Request | None:
    """Return the request of a record, or None if the record has no namespace."""
    if not record.namespace:
        return None
    body, answer = _parsed(record.request_object), _parsed(record.response_object)
    return Request(
        time=record.request_received_timestamp.timestamp(),
        answered=record.stage_timestamp.timestamp(),
        verb=record.verb,
        resource=record.resource,
        subresource=record.subresource,
        namespace=record.namespace,
        name=record.name or _name_in(body) or _name_in(answer),
        code=record.code,
        user=record.username,
        user_agent=record.user_agent,
        credential=record.credential,
        dry_run="dryRun=" in record.request_uri,
        body=body,
        answer=answer if isinstance(answer, dict) else None,
    )


def _parsed(raw: msgspec.Raw) -> Any:
    text = bytes(raw)
    return msgspec.json.decode(text) if text else None


def _name_in(body: Any) -> str:
    metadata = body.get("metadata") if isinstance(body, dict) else None
    return str(metadata.get("name") or "") if isinstance(metadata, dict) else ""
