"""The simulator produces the same sequences of VM and VMI events as the recordings of real KubeVirt.

The recordings `real-*` were made with `tools/realkubevirt`, and their guests boot. Only the states that the rules read
are compared with them: whether a VM or VMI exists, its phase, and whether it is ready.
"""

from typing import Any, Final

import pytest

from informers.resource import Resource
from sandbox.datavolumes import DATA_VOLUMES
from sandbox.settings import SimulationSettings
from sandbox.vmis import VMIS
from sandbox.vms import VMS
from tests.sandbox.replay import Recording, Replay, Told

FULL = SimulationSettings(detail="full", ready_after_s=2.0)
SHORT = SimulationSettings(detail="short", ready_after_s=2.0)
SETTLED = (
    "vm-start",
    "vmi-deleted-always",
    "vmi-deleted-once",
    "vmi-deleted-rerunonfailure",
    "vmi-deleted-manual",
    "vmi-deleted-halted",
    "vm-deleted",
    "vm-deleted-orphan",
    "vm-live-update",
    "vm-restart-required",
)
"""Recordings that end when the VM no longer changes."""

ENDLESS = {"vm-fail-start": 400, "vm-crash": 15}
"""Recordings that end while the VM still fails. For each recording, how many seconds the simulation runs."""


def played(name: str, settings: SimulationSettings = FULL) -> tuple[Recording, Replay]:
    recording = Recording(name)
    replay = Replay(recording, settings=settings)
    replay.play(lasts_s=ENDLESS.get(name, recording.lasts_s + 30))
    return recording, replay


@pytest.mark.parametrize("resource", [VMS, VMIS], ids=lambda resource: resource.kind)
@pytest.mark.parametrize("name", SETTLED)
def test_the_full_sequence_of_events_is_the_recorded_one(name: str, resource: Resource[Any]) -> None:
    recording, replay = played(name)
    assert replay.story(resource) == recording.story(resource)


@pytest.mark.parametrize("resource", [VMS, VMIS], ids=lambda resource: resource.kind)
@pytest.mark.parametrize("name", ENDLESS)
def test_a_vm_that_fails_again_and_again_shows_the_recorded_events(name: str, resource: Resource[Any]) -> None:
    recording, replay = played(name)
    recorded, simulated = recording.story(resource), replay.story(resource)
    assert len(simulated) >= len(recorded)
    assert simulated[: len(recorded)] == recorded


@pytest.mark.parametrize("name", [*(name for name in SETTLED if name != "vm-start"), "real-vm-killed"])
def test_the_simulator_leaves_a_vm_alone_that_real_kubevirt_runs(name: str) -> None:
    _, replay = played(name)
    assert replay.steps_before == []


@pytest.mark.parametrize("resource", [VMS, VMIS], ids=lambda resource: resource.kind)
@pytest.mark.parametrize("name", [*SETTLED, *ENDLESS])
def test_the_short_sequence_leaves_out_events_of_the_full_one_and_adds_none(name: str, resource: Resource[Any]) -> None:
    full, short = (
        [without_generation(event) for event in played(name, settings)[1].story(resource)] for settings in (FULL, SHORT)
    )
    assert short
    rest = iter(full)
    for number, event in enumerate(short[: len(full) // 2] if name in ENDLESS else short):
        assert event in rest, f"event {number} is not in the full sequence, or too late: {event}"


def without_generation(event: Told) -> Told:
    """The event without the generation. For a VMI, the generation only counts the writes."""
    type_, obj = event
    meta = {field: value for field, value in obj.get("metadata", {}).items() if field != "generation"}
    return type_, {**obj, "metadata": meta}


State = tuple[str, str]
ONLY_REAL: Final[dict[tuple[str, str], list[State]]] = {
    ("real-vm-start", VMS.kind): [("Stopped", "")],  # another loop writes the status first
    ("real-vm-killed", VMS.kind): [("Stopped", "False")],  # the Pod takes seconds to end
    ("real-vm-killed", VMIS.kind): [("Failed", "False")],
    ("real-vm-disk", VMS.kind): [("Stopped", "")],
    ("real-vm-disk", DATA_VOLUMES.kind): [("Pending", "False"), ("ImportScheduled", "False")],  # the import has a Pod
}
"""States that the simulator does not have, because they follow from loops and Pods that it does not play."""

ONLY_SIMULATED: Final[dict[tuple[str, str], list[State]]] = {
    ("real-vm-disk", VMIS.kind): [("Pending", "False")],  # the Pod of the real one exists, and waits for the disk
}


def states(story: list[Told]) -> list[State]:
    """The states in their order. A state that lasts is listed once."""
    found: list[State] = []
    for type_, obj in story:
        state = ("deleted", "") if type_ == "DELETED" else _state(obj)
        if found[-1:] != [state]:
            found.append(state)
    return found


def _state(obj: dict[str, Any]) -> State:
    status = obj.get("status") or {}
    ready = status.get("conditions", {}).get("Ready", {}).get("status", "")
    return status.get("phase") or status.get("printableStatus", ""), ready


@pytest.mark.parametrize("resource", [VMS, VMIS, DATA_VOLUMES], ids=lambda resource: resource.kind)
@pytest.mark.parametrize("name", ["real-vm-start", "real-vm-killed", "real-vm-disk"])
def test_a_simulated_vm_has_the_states_of_a_real_one(name: str, resource: Resource[Any]) -> None:
    recording, replay = played(name)
    only_real, only_simulated = (each.get((name, resource.kind), []) for each in (ONLY_REAL, ONLY_SIMULATED))
    recorded, simulated = states(recording.story(resource)), states(replay.story(resource))
    assert set(only_real) <= set(recorded), "the exceptions are seen in the recording"
    assert set(only_simulated) <= set(simulated), "the exceptions are seen in the simulator"
    assert [each for each in simulated if each not in only_simulated] == [
        each for each in recorded if each not in only_real
    ]
