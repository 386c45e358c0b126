"""The simulator produces the same sequences of VM and VMI events as the recordings of real KubeVirt."""

from typing import Any

import pytest

from informers.resource import Resource
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


@pytest.mark.parametrize("name", [name for name in SETTLED if name != "vm-start"])
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
