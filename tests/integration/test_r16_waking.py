"""R16 and G4: only relevant changes trigger a reconciliation, and a set at rest sends no requests."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.integration.controller_process import (
    PATIENT_LEASE,
    ControllerProcess,
    ReplicaSetNamespace,
    controller_process,
    eventually,
    quiet_down,
    stays,
)

pytestmark = pytest.mark.cluster

REST_S = 5.0
RENEWED_EACH_S = 1.0
"""The retry period of `PATIENT_LEASE`."""

IRRELEVANT: dict[str, dict[str, Any]] = {
    "an annotation": {"metadata": {"annotations": {"note": "hello"}}},
    "a field of the status": {"status": {"guestOSInfo": {"name": "Fedora"}}},
    "a foreign finalizer": {"metadata": {"finalizers": ["test.vmherd.dev/hold"]}},
}


def test_r16_an_irrelevant_change_triggers_no_pass(sets: ReplicaSetNamespace, running: ControllerProcess) -> None:
    sets.make_set(2)
    name = next(iter(sets.wait_for(2)))
    sets.play_all()
    eventually(lambda: sets.status().get("readyReplicas") == 2)
    before = quiet_down(sets, running)
    for what, change in IRRELEVANT.items():
        sets.change_vmi(name, change)
        stays(lambda: running.passes(sets.namespace) == before, for_s=0.7, what=f"no pass after {what}")
    sets.change_vmi(name, {"metadata": {"finalizers": None}})
    sets.delete_vmi(name)
    eventually(lambda: running.passes(sets.namespace) > before, what="a deletion triggers a pass")


def test_r16_an_orphan_that_matches_no_set_triggers_no_pass(
    sets: ReplicaSetNamespace, running: ControllerProcess
) -> None:
    sets.make_set(1)
    sets.wait_for(1)
    before = quiet_down(sets, running)
    sets.make_vmi("stranger", labels={"app": "other"})
    sets.change_vmi("stranger", {"metadata": {"labels": {"more": "yes"}}})
    stays(lambda: running.passes(sets.namespace) == before, what="no pass")
    sets.change_vmi("stranger", {"metadata": {"labels": {"app": "herd"}}})
    eventually(lambda: running.passes(sets.namespace) > before, what="a matching label triggers a pass")


def test_r16_at_rest_there_are_no_requests_but_watches_and_the_lease(
    idle_namespace: ReplicaSetNamespace, tmp_path: Path
) -> None:
    with controller_process(idle_namespace.plane, tmp_path, *PATIENT_LEASE) as program:
        idle_namespace.make_set(20)
        idle_namespace.wait_for(20)
        idle_namespace.play_all()
        eventually(lambda: idle_namespace.status().get("readyReplicas") == 20)
        passes = quiet_down(idle_namespace, program)
        eventually(lambda: idle_namespace.reasons()["SuccessfulCreate"] == 20, what="all Events are sent")
        time.sleep(1)
        at_rest = idle_namespace.plane.audit_position()
        rests_from = time.monotonic()
        time.sleep(REST_S)
        # The audit log has a watch when the watch ends. The watches of this test have not ended.
        asked = Counter(
            (record.verb, record.resource)
            for record in idle_namespace.plane.audit_records(at_rest)
            if record.user_agent.startswith("vmherd/")
        )
        renewals = (time.monotonic() - rests_from) / RENEWED_EACH_S
        # A process outside the cluster looks once a minute for another leader.
        assert asked.keys() - {("list", "leases")} == {("patch", "leases")}, asked
        assert asked["list", "leases"] <= 1
        assert asked["patch", "leases"] <= renewals + 2, "the lease is renewed too often"
        assert program.passes(idle_namespace.namespace) == passes
