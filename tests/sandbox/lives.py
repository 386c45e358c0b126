"""A simulated VMI on the fake API server. The simulator sends one patch after the other, in virtual time."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Self

import msgspec

from sandbox.settings import BEHAVIOR, READY_AFTER, SHUTDOWN_AFTER
from sandbox.step import Patch
from sandbox.vmis import VMIS, SimulatedVMI, VMIState
from tests.sandbox.machines import CREATED, Machines

NAME = "test"
WAY_UP = ["", "Pending", "Scheduling", "Scheduled", "Running"]
FINAL = {"Succeeded", "Failed"}


class Life:
    """One VMI on an API server, and a simulator without delays."""

    def __init__(
        self,
        annotations: Mapping[str, str] | None = None,
        *,
        grace_s: int | None = None,
        uid: str = "uid-1",
        has_pod: bool = False,
    ) -> None:
        self._machines = Machines(has_pod=has_pod)
        self._machines.on_patch = self._note
        self.gone_at: float | None = None
        self.seen: list[tuple[float, VMIState]] = []
        self.patches: list[dict[str, Any]] = []
        meta = {"name": NAME, "uid": uid, "annotations": dict(annotations or {})}
        spec = {"domain": {}, "terminationGracePeriodSeconds": grace_s}
        self.document = self._machines.create(VMIS, {"metadata": meta, "spec": spec})
        """The present state of the VMI on the server, or its last state."""

    @property
    def vmi(self) -> SimulatedVMI:
        vmi = VMIS.decode(json.dumps(self.document).encode())
        return msgspec.structs.replace(vmi, has_pod=self._machines.has_pod)

    @property
    def now(self) -> datetime:
        return self._machines.now

    @property
    def finalizers(self) -> list[str]:
        return list(self.document["metadata"].get("finalizers") or [])

    @property
    def phases(self) -> list[str]:
        return [look.phase for _, look in self.seen]

    def live(self, seconds: float, *, vm_exists: bool = False) -> Self:
        """Advance the time. The simulator acts without a delay."""
        self._machines.vm_exists = vm_exists
        self._machines.live(seconds)
        return self

    def sleep(self, seconds: float) -> Self:
        """Advance the time without a simulator. Then start a new simulator."""
        self._machines.sleep(seconds)
        return self

    def take(self, patch: Patch) -> None:
        """Send the simulator's patch to the server."""
        self._machines.take(VMIS, NAME, patch)

    def change(self, patch: dict[str, Any]) -> Self:
        """Apply a merge patch to the VMI, as another client."""
        self._machines.patch(VMIS, NAME, patch)
        self.document = self._machines.get(VMIS, NAME)
        return self

    def set_finalizers(self, *finalizers: str) -> Self:
        return self.change({"metadata": {"finalizers": list(finalizers)}})

    def annotate(self, **annotations: str | None) -> Self:
        names = {"ready_after": READY_AFTER, "behavior": BEHAVIOR, "shutdown_after": SHUTDOWN_AFTER}
        return self.change({"metadata": {"annotations": {names[name]: text for name, text in annotations.items()}}})

    def delete(self) -> Self:
        self._machines.delete(VMIS, NAME)
        self._look()
        return self

    def _note(self, patch: dict[str, Any], answer: dict[str, Any]) -> None:
        self.patches.append(patch)
        self.document = answer
        look = self.vmi.state
        assert look is not None
        self.seen.append((round((self.now - CREATED).total_seconds(), 3), look))
        self._look()

    def _look(self) -> None:
        self.document = self._machines.document(VMIS, NAME) or self.document
        if self._machines.document(VMIS, NAME) is None:
            self.gone_at = round((self.now - CREATED).total_seconds(), 3)


def behaving(behavior: str, ready_after: str = "2s", **more: str) -> Life:
    return Life({BEHAVIOR: behavior, READY_AFTER: ready_after, **more})
