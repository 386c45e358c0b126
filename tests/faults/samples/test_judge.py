"""The judge of the audit log, and the comparison of end states, find each mistake."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import Raw

from sandbox.audit import AuditRecord, _ObjectRef, _Status
from tests.faults.resources import POOLS, VMS
from tests.faults.samples.judge import judge
from tests.faults.samples.objects import Objects, end_state

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def asked(verb: str, resource: str = VMS, body: Any = None, *, code: int = 200, at_s: float = 0.0) -> AuditRecord:
    return AuditRecord(
        verb=verb,
        request_uri="/",
        object_ref=_ObjectRef(resource=resource, name="web-0"),
        response_status=_Status(code=code),
        request_received_timestamp=NOW + timedelta(seconds=at_s),
        stage_timestamp=NOW,
        request_object=Raw(json.dumps(body).encode()) if body is not None else Raw(),
    )


UID = {"preconditions": {"uid": "1"}}
NOTE = {"annotations": {"vmherd.dev/unready": "x"}}


@pytest.mark.parametrize(
    ("request_of_ours", "told"),
    [
        (asked("delete", body={"preconditions": {}}), "names no UID"),
        (asked("update"), "replaces the whole object"),
        (asked("patch", body=[{"op": "remove", "path": "/metadata/finalizers"}]), "tests no UID"),
        (asked("patch", body={"metadata": NOTE}), "has no precondition"),
        (asked("patch", body={"metadata": {"uid": "1", **NOTE}, "spec": {}}), "has no precondition"),
        (asked("patch", body={"metadata": {"uid": "1", "labels": {"app": "web"}}}), "has no precondition"),
        (asked("patch", body=[{"op": "test", "path": "/metadata/uid", "value": "1"}]), ""),
        (asked("patch", body={"metadata": {"uid": "1", **NOTE}}), ""),
        (asked("patch", body={"metadata": {"resourceVersion": "7"}, "spec": {}}), ""),
        (asked("patch", "events", {"count": 2}), ""),
    ],
)
def test_a_write_without_a_precondition_is_found(request_of_ours: AuditRecord, told: str) -> None:
    found = list(judge([request_of_ours], [request_of_ours], counted=True))
    assert (told in found[0]) if told else not found


def test_a_second_delete_and_a_write_that_is_repeated_too_often_are_found() -> None:
    once = [asked("delete", body=UID)]
    assert list(judge([*once, *once], once, counted=True)) == [f"delete {VMS}: 1 more than without the fault"]
    assert not list(judge([*once, *once], once, counted=False))
    hammered = [asked("patch", POOLS, {"metadata": {"resourceVersion": "1"}}, code=403, at_s=n / 10) for n in range(21)]
    assert list(judge(hammered, [], counted=True)) == [f"patch {POOLS}/web-0 -> 403 fails more than 20 times in 10 s"]
    assert not list(judge(hammered[:20], [], counted=True))


def objects_with(plural: str, name: str, **item: Any) -> Objects:
    objects = Objects()
    metadata = {"name": name, "uid": name, "resourceVersion": "1", **item.pop("metadata", {})}
    objects[plural][name] = {"metadata": metadata, **item}
    return objects


def test_end_states_are_equal_if_only_identities_and_times_differ() -> None:
    first = objects_with(VMS, "pool-0", spec={"a": 1}, status={"conditions": [{"lastTransitionTime": "1"}]})
    second = objects_with(VMS, "pool-0", spec={"a": 1}, status={"conditions": [{"lastTransitionTime": "2"}]})
    second[VMS]["pool-0"]["metadata"].update(uid="another", resourceVersion="7")
    assert end_state(first) == end_state(second)
