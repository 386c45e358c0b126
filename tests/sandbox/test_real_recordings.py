"""The simulator's VMs pass through the same states as VMs of real KubeVirt with guests that boot.

The recordings `real-*` were made with `tools/realkubevirt`. Only the states that the rules read are compared: whether a
VM or VMI exists, its phase, and whether it is ready.
"""

from typing import Any, Final

import pytest

from informers.resource import Resource
from sandbox.claims import WAITING_PHASE
from sandbox.datavolumes import DATA_VOLUMES
from sandbox.settings import READY_AFTER, SimulationSettings
from sandbox.vmis import VMIS
from sandbox.vms import VMS
from tests.sandbox.replay import Recording, Replay, Told

State = tuple[str, str]
IMPORTED: Final = {WAITING_PHASE: "PendingPopulation", READY_AFTER: "4s"}
"""The annotations of a simulated disk that waits for its VM, as in the recording."""

FULL: Final = SimulationSettings(detail="full", ready_after_s=2.0)
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


class RealReplay(Replay):
    def _act(self, action: str) -> None:
        if action == "QEMU killed":
            self.machines.patch(VMIS, "vm", {"status": {"phase": "Failed"}})
        elif action == "VirtualMachine created":
            vm = self._recording.new_vm()
            for disk in vm["spec"].get("dataVolumeTemplates", ()):
                disk["metadata"]["annotations"] = IMPORTED
            self.machines.create(VMS, vm)
        else:
            super()._act(action)


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
    recording = Recording(name)
    replay = RealReplay(recording, settings=FULL)
    replay.play(lasts_s=recording.lasts_s + 30)
    only_real, only_simulated = (each.get((name, resource.kind), []) for each in (ONLY_REAL, ONLY_SIMULATED))
    recorded, simulated = states(recording.story(resource)), states(replay.story(resource))
    assert set(only_real) <= set(recorded), "the exceptions are seen in the recording"
    assert set(only_simulated) <= set(simulated), "the exceptions are seen in the simulator"
    assert [each for each in simulated if each not in only_simulated] == [
        each for each in recorded if each not in only_real
    ]


def test_the_simulator_leaves_a_vm_with_a_real_guest_alone() -> None:
    assert RealReplay(Recording("real-vm-killed"), settings=FULL).steps_before == []
