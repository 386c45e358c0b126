"""The audit log of the API server: what it records, and how a record is read."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox.audit import POLICY, read_records

RECORD: dict[str, Any] = {
    "verb": "create",
    "requestURI": "/api/v1/namespaces/n/configmaps",
    "requestReceivedTimestamp": "2026-01-01T00:00:00.000000Z",
    "stageTimestamp": "2026-01-01T00:00:00.100000Z",
}


def test_a_position_in_the_middle_of_a_line_skips_the_rest_of_that_line(tmp_path: Path) -> None:
    """The server writes a line in pieces. A request of that line was answered before the position was taken."""
    first, second = (json.dumps({**RECORD, "verb": verb}) + "\n" for verb in ("create", "delete"))
    log = tmp_path / "audit.jsonl"
    log.write_text(first + second)
    for position in (1, len(first) - 1, len(first)):
        assert [record.verb for record in read_records(log, position)] == ["delete"]
    assert [record.verb for record in read_records(log)] == ["create", "delete"]


def test_the_incomplete_record_of_a_killed_server_is_skipped(tmp_path: Path) -> None:
    """A new server continues the line."""
    kind = {"kind": "Event", "apiVersion": "audit.k8s.io/v1"}
    cut, whole = (json.dumps({**kind, **RECORD, "verb": verb}, separators=(",", ":")) for verb in ("create", "delete"))
    log = tmp_path / "audit.jsonl"
    for length in (1, 20, len(cut) - 1):
        log.write_text(f"{cut}\n{cut[:length]}{whole}\n{cut}\n")
        assert [record.verb for record in read_records(log)] == ["create", "delete", "create"]


def test_a_line_that_the_server_completes_during_the_reading_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of the file, a reader gets the first piece of the line. Then it gets the second piece."""
    line = json.dumps(RECORD).encode() + b"\n"
    monkeypatch.setattr(Path, "open", lambda *_: nullcontext([line, line[:20], line[20:]]))
    assert len(list(read_records(Path("audit.jsonl")))) == 1


def test_no_body_is_recorded() -> None:
    assert {rule["level"] for rule in yaml.safe_load(POLICY.read_text())["rules"]} == {"None", "Metadata"}
