"""P19: what concerns a pool wakes it at once, what does not leaves it asleep, and at rest there is silence."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import pytest

from tests.integration.herd import Herd, eventually, stays
from tests.integration.ranch import BEHAVIOR, FINALIZER, Ranch, finalizers_of, vm_template
from tests.integration.renewal import revision_of

pytestmark = pytest.mark.cluster

REST_S = 5.0
QUIET_S = 0.8
IRRELEVANT: dict[str, dict[str, Any]] = {
    "an annotation": {"metadata": {"annotations": {"note": "hello"}}},
    "a field of the status": {"status": {"guestOSInfo": {"name": "Fedora"}}},
    "a node": {"status": {"nodeName": "node-of-another-name"}},
}


def quiet_down(ranch: Ranch, rancher: Herd) -> int:
    """Wait until there was no pass for a while. Return how many there were."""
    seen, since = -1, time.monotonic()

    def is_quiet() -> bool:
        nonlocal seen, since
        now = rancher.passes(ranch.namespace)
        if now != seen:
            seen, since = now, time.monotonic()
        return time.monotonic() - since > QUIET_S

    eventually(is_quiet, what="quiet")
    return seen


def answer_times(ranch: Ranch) -> list[float]:
    """How long after each deletion of a VM the controller asked for its finalizer to be taken off, in seconds."""
    records = sorted(ranch.plane.audit_records(ranch.since), key=lambda each: each.request_received_timestamp)
    ours = [r for r in records if r.namespace == ranch.namespace and r.resource == "virtualmachines" and r.code == 200]
    waits = []
    for asked in (record for record in ours if record.verb == "delete"):
        answers = [
            record.request_received_timestamp
            for record in ours
            if record.name == asked.name
            and record.verb == "patch"
            and record.user_agent.startswith("vmherd/")
            and record.request_received_timestamp >= asked.request_received_timestamp
        ]
        waits.append((answers[0] - asked.request_received_timestamp).total_seconds())
    return waits


def test_p19_a_vm_that_its_user_deletes_is_let_go_at_once(ranch: Ranch) -> None:
    ranch.make_pool(6, template=vm_template(runStrategy="Halted"))
    ranch.wait_for_ordinals(*range(6), ready=False)
    ranch.wait_until_updated(6)
    mine = ranch.since = ranch.plane.audit_position()
    for ordinal in range(6):
        ranch.kubectl("delete", "vm", f"pool-{ordinal}", "--wait=false")
    eventually(lambda: len(ranch.vms_created(mine)) == 6, what="all come back")
    waits = answer_times(ranch)
    assert len(waits) == 6
    assert median(waits) < 0.3, waits


def test_p19_a_new_pool_and_a_new_number_are_looked_at_at_once(ranch: Ranch) -> None:
    waits = []
    for ordinal in range(5):
        name = f"new{ordinal}"
        asked = ranch.plane.audit_position()
        ranch.make_pool(1, name=name, template=vm_template(runStrategy="Halted"))
        ranch.wait_for_vms(*(f"new{each}-0" for each in range(ordinal + 1)), ready=False)
        records = [r for r in ranch.plane.audit_records(asked) if r.namespace == ranch.namespace]
        made = min(r.request_received_timestamp for r in records if r.resource == "virtualmachinepools")
        vm = min(
            r.request_received_timestamp for r in records if r.resource == "virtualmachines" and r.verb == "create"
        )
        waits.append((vm - made).total_seconds())
    assert median(waits) < 0.5, waits


def test_p19_the_readiness_and_the_revision_of_a_vmi_wake_the_pool_of_its_vm(ranch: Ranch, rancher: Herd) -> None:
    ranch.make_pool(2)
    ranch.wait_ready(2)
    before = quiet_down(ranch, rancher)
    revision = revision_of(ranch.vmis()["pool-0"])
    ranch.change_vmi("pool-0", {"metadata": {"labels": {"kubevirt.io/vm-pool-revision-name": "none"}}})
    eventually(lambda: rancher.passes(ranch.namespace) > before, what="a revision wakes")
    eventually(lambda: revision_of(ranch.vmis()["pool-0"]) == revision, what="and is put right")
    ranch.wait_ready(2)
    before = quiet_down(ranch, rancher)
    ranch.change_vmi("pool-1", {"metadata": {"annotations": {BEHAVIOR: "never-ready"}}})
    eventually(lambda: rancher.passes(ranch.namespace) > before, within_s=5, what="readiness wakes")
    eventually(lambda: ranch.pool_status().get("readyReplicas") == 1)


def test_p19_a_change_that_alters_no_decision_wakes_nobody(ranch: Ranch, rancher: Herd) -> None:
    ranch.make_pool(2)
    ranch.wait_ready(2)
    before = quiet_down(ranch, rancher)
    for what, change in IRRELEVANT.items():
        ranch.change_vmi("pool-0", change)
        stays(lambda: rancher.passes(ranch.namespace) == before, for_s=0.6, what=f"asleep after {what}")
    ranch.make_vm("stranger", template=vm_template(running=False))
    ranch.change_vm("stranger", {"metadata": {"annotations": {"note": "hello"}}})
    stays(lambda: rancher.passes(ranch.namespace) == before, for_s=0.6, what="asleep after a stranger's change")


def test_p19_the_removal_of_the_pool_wakes_it_and_lets_its_vms_go(ranch: Ranch, rancher: Herd) -> None:
    ranch.make_pool(2)
    ranch.wait_ready(2)
    before = quiet_down(ranch, rancher)
    asked = time.monotonic()
    ranch.kubectl("delete", "vmpool", "pool", "--cascade=orphan", "--wait=false")
    eventually(lambda: not ranch.pool_exists(), within_s=5)
    assert time.monotonic() - asked < 5
    assert rancher.passes(ranch.namespace) > before
    eventually(lambda: not any(FINALIZER in finalizers_of(vm) for vm in ranch.vms().values()))


def test_p19_at_rest_there_are_no_requests(ranch: Ranch, rancher: Herd) -> None:
    ranch.make_pool(10)
    ranch.wait_ready(10)
    ranch.make_pool(2, name="degraded", template=vm_template(vmi_annotations={BEHAVIOR: "never-ready"}))
    eventually(lambda: ranch.pool_status("degraded").get("replicas") == 2)
    passes = quiet_down(ranch, rancher)
    time.sleep(1)
    at_rest = ranch.plane.audit_position()
    time.sleep(REST_S)
    assert ranch.requests(since=at_rest) == []
    assert rancher.passes(ranch.namespace) == passes
