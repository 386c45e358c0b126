"""A simulated VMI on the fake API server. The simulator sends one patch after the other, in virtual time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from informers.meta import ObjectKey
from informers.objects import PatchType
from sandbox.behavior import next_step
from sandbox.settings import BEHAVIOR, READY_AFTER, SHUTDOWN_AFTER
from sandbox.vmis import VMIS, SimulatedVMI, VMIState, state_of
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.virtual_time import run

CREATED = datetime(2026, 8, 1, 12, 0, 0, 400_000, tzinfo=UTC)
KEY = ObjectKey("default", "test")
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
        self.now = CREATED
        self.first_seen = CREATED
        self.has_pod = has_pod
        self.gone_at: float | None = None
        self.seen: list[tuple[float, VMIState]] = []
        self.patches: list[dict[str, Any]] = []
        self._server = FakeApiServer(latency_s=0, now=lambda: self.now)
        self.document = self._server.put(
            VMIS,
            {
                "metadata": {"name": KEY.name, "uid": uid, "annotations": dict(annotations or {})},
                "spec": {"domain": {}, "terminationGracePeriodSeconds": grace_s},
            },
        )
        """The present state of the VMI on the server, or its last state."""

    @property
    def vmi(self) -> SimulatedVMI:
        vmi = VMIS.decode(json.dumps(self.document).encode())
        return msgspec.structs.replace(vmi, has_pod=self.has_pod)

    @property
    def elapsed_s(self) -> float:
        return (self.now - CREATED).total_seconds()

    @property
    def finalizers(self) -> list[str]:
        return list(self.document["metadata"].get("finalizers") or [])

    def live(self, seconds: float, *, vm_exists: bool = False) -> Life:
        """Advance the time. The simulator acts without a delay."""
        until = self.now + timedelta(seconds=seconds)
        turns = 0
        while self.gone_at is None:
            turns += 1
            assert turns < 50, "the simulator does not come to rest"
            step = next_step(self.vmi, self.now, self.first_seen, vm_exists=vm_exists)
            assert step.write is None or step.after_s is None
            if step.write is not None:
                self.take(step.write.body)
                continue
            # A timer of the loop is a little late, and never early.
            due = until if step.after_s is None else self.now + timedelta(seconds=step.after_s, microseconds=1)
            self.now = min(due, until)
            if self.now == until:
                break
        return self

    def sleep(self, seconds: float) -> Life:
        """Advance the time without a simulator. Then start a new simulator."""
        self.now += timedelta(seconds=seconds)
        self.first_seen = self.now
        return self

    def take(self, body: bytes) -> None:
        """Send the simulator's patch to the server."""
        patch = json.loads(body)
        assert patch["metadata"]["uid"] == self.document["metadata"]["uid"]
        self.patches.append(patch)
        self.document = json.loads(run(self._server.patch(VMIS, KEY, body, content_type=PatchType.MERGE)))
        look = state_of(self.vmi)
        assert look is not None
        self.seen.append((round(self.elapsed_s, 3), look))
        self._note_if_gone()

    def set_finalizers(self, *finalizers: str) -> Life:
        self.document = self._server.change(VMIS, KEY, {"metadata": {"finalizers": list(finalizers)}})
        return self

    def annotate(self, **annotations: str | None) -> Life:
        names = {"ready_after": READY_AFTER, "behavior": BEHAVIOR, "shutdown_after": SHUTDOWN_AFTER}
        changes = {names[name]: value for name, value in annotations.items()}
        self.document = self._server.change(VMIS, KEY, {"metadata": {"annotations": changes}})
        return self

    def change(self, patch: dict[str, Any]) -> None:
        """Apply a merge patch to the VMI, as another client."""
        self.document = self._server.change(VMIS, KEY, patch)

    def delete(self) -> Life:
        self._server.remove(VMIS, KEY)
        self.document = self._server.current(VMIS, KEY) or self.document
        self._note_if_gone()
        return self

    def _note_if_gone(self) -> None:
        if self._server.current(VMIS, KEY) is None:
            self.gone_at = round(self.elapsed_s, 3)

    @property
    def phases(self) -> list[str]:
        return [look.phase for _, look in self.seen]


def behaving(behavior: str, ready_after: str = "2s", **more: str) -> Life:
    return Life({BEHAVIOR: behavior, READY_AFTER: ready_after, **more})
