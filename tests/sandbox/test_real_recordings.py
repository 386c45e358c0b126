"""The simulator's VMs pass through the same states as VMs of real KubeVirt with guests that boot.

The recordings `real-*` were made with `tools/realkubevirt`. Only the states that the rules read are compared: whether a
VM or VMI exists, its phase, and whether it is ready.
"""

from typing import Any, Final

import pytest

from informers.resource import Resource
from sandbox.settings import SimulationSettings
from sandbox.vmis import VMIS
from sandbox.vms import VMS
from tests.sandbox.replay import Recording, Replay, Told

State = tuple[str, str]

FULL: Final = SimulationSettings(detail="full", ready_after_s=2.0)
ONLY_REAL: Final[dict[tuple[str, str], list[State]]] = {
    ("real-vm-start", VMS.kind): [("Stopped", "")],  # another loop writes the status first
    ("real-vm-killed", VMS.kind): [("Stopped", "False")],  # the Pod takes seconds to end
    ("real-vm-killed", VMIS.kind): [("Failed", "False")],
}
"""States that the simulator does not have, because they follow from loops and Pods that it does not play."""


class RealReplay(Replay):
    def _act(self, action: str) -> None:
        if action == "QEMU killed":
            self.machines.patch(VMIS, "vm", {"status": {"phase": "Failed"}})
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


@pytest.mark.parametrize("resource", [VMS, VMIS], ids=lambda resource: resource.kind)
@pytest.mark.parametrize("name", ["real-vm-start", "real-vm-killed"])
def test_a_simulated_vm_has_the_states_of_a_real_one(name: str, resource: Resource[Any]) -> None:
    recording = Recording(name)
    replay = RealReplay(recording, settings=FULL)
    replay.play(lasts_s=recording.lasts_s + 30)
    only_real = ONLY_REAL.get((name, resource.kind), [])
    recorded, simulated = states(recording.story(resource)), states(replay.story(resource))
    assert set(only_real) <= set(recorded), "the exceptions are seen in the recording"
    assert simulated == [state for state in recorded if state not in only_real]


def test_the_simulator_leaves_a_vm_with_a_real_guest_alone() -> None:
    assert RealReplay(Recording("real-vm-killed"), settings=FULL).steps_before == []
