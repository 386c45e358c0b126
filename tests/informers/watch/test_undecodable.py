"""Objects with an unreadable field: the cache gets only their metadata."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from msgspec import Raw, Struct
from structlog.testing import capture_logs

from informers.informer import SharedInformer
from informers.meta import ObjectMeta, labels_of
from informers.resource import Resource
from informers.store import Change
from informers.watch.parser import Undecodable, WatchParser
from tests.informers.scripted import RecordedInstruments, ScriptedClient, following, names, stream
from tests.informers.subjects import failure, key, line, page

pytestmark = pytest.mark.looptime


class Status(Struct, frozen=True):
    phase: str | None = None


class Machine(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: Mapping[str, str] | None = None
    status: Status | None = None
    undecodable: str = msgspec.field(default="", name="(undecodable)")


MACHINES = Resource(Machine, group="example.org", version="v1", plural="machines", kind="Machine", partial=True)
PHASE = "Expected `str | null`, got `int` - at `$.status.phase`"


def machine(name: str, version: int, *, phase: Any = "Running", uid: str = "", **more: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "ns", "uid": uid or f"uid-of-{name}", "resourceVersion": str(version)}
    return {"metadata": {**meta, **more.pop("meta", {})}, "spec": {"a": "b"}, "status": {"phase": phase}, **more}


def raw(document: dict[str, Any]) -> Raw:
    return Raw(json.dumps(document).encode())


def test_only_the_metadata_are_decoded_and_the_message_is_kept():
    meta = {"labels": {"x": "y"}, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    found = MACHINES.decode_metadata(raw(machine("a", 5, phase=7, meta=meta)), "why")
    assert found is not None
    assert (found.spec, found.status, found.undecodable) == (None, None, "why")
    assert (found.metadata.name, found.metadata.uid, found.metadata.resource_version) == ("a", "uid-of-a", "5")
    assert labels_of(found.metadata) == {"x": "y"}
    assert found.metadata.deletion_timestamp is not None


def test_without_a_name_or_with_unreadable_metadata_nothing_is_decoded():
    assert MACHINES.decode_metadata(raw(machine("", 5)), "why") is None
    assert MACHINES.decode_metadata(raw(machine("a", 5, meta={"labels": 7})), "why") is None
    assert MACHINES.decode_metadata(Raw(b'{"metadata":{"name":"a","labels":{"x":"\xff"}}}'), "why") is None
    assert MACHINES.decode_metadata(Raw(b"[]"), "why") is None


def test_a_resource_that_is_not_partial_decodes_nothing():
    whole = Resource(Machine, group="example.org", version="v1", plural="machines", kind="Machine")
    assert whole.decode_metadata(raw(machine("a", 5, phase=7)), "why") is None


def test_an_object_that_is_nested_too_deeply_has_only_its_metadata():
    text = json.dumps({"type": "ADDED", "object": machine("a", 5, other="@")})
    [event] = WatchParser(MACHINES).feed(text.replace('"@"', "[" * 1_000_000 + "]" * 1_000_000).encode() + b"\n")
    assert isinstance(event, Undecodable)
    assert event.partial == Machine(metadata=event.partial.metadata, undecodable="the object is nested too deeply")
    assert event.partial.metadata.name == "a"


async def test_an_unreadable_field_disturbs_no_sibling_and_the_object_follows_its_metadata_until_it_is_deleted():
    expired = line("ERROR", failure(410, "Expired"))
    client = ScriptedClient(
        page(machine("a", 1), machine("new", 2, phase=7), machine("x", 3), version=5),
        stream(
            line("MODIFIED", machine("x", 6, phase=7, meta={"labels": {"now": "here"}})),
            line("ADDED", machine("b", 7)),
            1.0,
            expired,
        ),
        page(machine("a", 1), machine("b", 7), machine("new", 2, phase=7), machine("x", 8, phase=9), version=9),
        stream(line("MODIFIED", machine("x", 10, phase="Failed")), 10.0, line("DELETED", machine("x", 11, phase=7))),
    )
    reports = RecordedInstruments()
    informer = SharedInformer(MACHINES, client, chance=lambda: 0.0, instruments=reports)  # type: ignore[arg-type]
    changes: list[Change[Machine]] = []
    informer.add_handler(changes.append)
    with capture_logs() as logs:
        async with following(informer):
            await asyncio.sleep(0.5)
            found = {obj.metadata.name: obj.undecodable for obj in informer.store.values()}
            assert found == {"a": "", "b": "", "new": PHASE, "x": PHASE.replace("$.", "$.object.")}
            changed = informer.store.get(key("x"))
            assert changed is not None
            assert (changed.spec, changed.status) == (None, None), "nothing of an earlier version"
            assert labels_of(changed.metadata) == {"now": "here"}, "the current metadata"
            new = informer.store.get(key("new"))
            assert new is not None
            assert new.status is None
            await asyncio.sleep(5)
            readable = informer.store.get(key("x"))
            assert readable is not None
            assert (readable.status, readable.undecodable) == (Status("Failed"), "")
            await asyncio.sleep(10)
            assert informer.store.get(key("x")) is None
    assert [each for each in names(changes) if each.endswith(" x")] == ["Added x", *["Updated x"] * 3, "Removed x"]
    assert reports.calls.count("undecodable") == 4
    told = [(entry["name"], entry["version"]) for entry in logs if entry["log_level"] == "error"]
    assert told == [("new", "2"), ("x", "6"), ("x", "8")]
