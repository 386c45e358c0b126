"""The recorder of real KubeVirt writes sequences in the form of `tests/recordings`."""

import json
from pathlib import Path
from typing import Any

import pytest

from tools.realkubevirt.record import Recorder


class Objects:
    """A kubectl that knows these VMs, and no VMI."""

    def __init__(self, *vms: dict[str, Any]) -> None:
        self._vms = vms

    def json(self, _verb: str, kind: str) -> dict[str, Any]:
        return {"items": [dict(vm) for vm in self._vms] if kind == "virtualmachines" else []}


def vm(uid: str, phase: str, *, replicas: int = 1) -> dict[str, Any]:
    meta = {"name": "vm", "uid": uid, "managedFields": [{}]}
    return {"kind": "VirtualMachine", "metadata": meta, "spec": {"n": replicas}, "status": {"phase": phase}}


def written(recorder: Recorder, tmp_path: Path) -> dict[str, Any]:
    recorder.write(tmp_path / "recording.json")
    return dict(json.loads((tmp_path / "recording.json").read_text()))


def test_a_recording_has_the_objects_the_actions_and_the_events_without_managed_fields(tmp_path: Path) -> None:
    recorder = Recorder(Objects(vm("1", "Running")), "A VM is killed")
    done: list[str] = []
    recorder.act("QEMU killed", lambda: done.append("killed"))
    recorder.note({"type": "MODIFIED", "object": vm("1", "Failed")})
    content = written(recorder, tmp_path)
    assert done == ["killed"]
    assert content["about"] == "A VM is killed"
    assert [action["action"] for action in content["actions"]] == ["QEMU killed"]
    assert [event["object"]["status"]["phase"] for event in content["events"]] == ["Failed"]
    every = [*content["before"], *(event["object"] for event in content["events"])]
    assert all("managedFields" not in each["metadata"] for each in every)


def test_a_spec_is_written_only_if_it_has_changed(tmp_path: Path) -> None:
    recorder = Recorder(Objects(vm("1", "Running")), "")
    for each in (vm("1", "Failed"), vm("1", "Failed", replicas=2), vm("1", "Running", replicas=2), vm("2", "Running")):
        recorder.note({"type": "MODIFIED", "object": each})
    assert [event["object"].get("spec") for event in written(recorder, tmp_path)["events"]] == [
        None,
        {"n": 2},
        None,
        {"n": 1},
    ]


@pytest.mark.parametrize(("uid", "events"), [("1", 0), ("2", 1)])
def test_the_objects_with_which_a_watch_begins_are_no_events(uid: str, events: int, tmp_path: Path) -> None:
    recorder = Recorder(Objects(vm("1", "Running")), "")
    recorder.note({"type": "ADDED", "object": vm(uid, "Running")})
    assert len(written(recorder, tmp_path)["events"]) == events
