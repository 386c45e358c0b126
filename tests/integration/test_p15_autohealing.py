"""P15: VMs that do not become ready are recreated, within limits. Other VMs are never touched."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from sandbox.controlplane import ControlPlane
from tests.integration.controller_process import ControllerProcess, eventually, owner_uid, stays, steady
from tests.integration.pool_namespace import (
    BEHAVIOR,
    HOLD,
    READY_AFTER,
    PoolNamespace,
    finalizers_of,
    is_vm_ready,
    new_pool_namespace,
    uids,
    vm_template,
)
from tests.integration.renewal import (
    VMS,
    break_vm,
    change_machine,
    done,
    hold_volume,
    printable_status_of,
    replacements,
)
from tests.integration.versions import versions

pytestmark = pytest.mark.cluster

HEALED = "vmherd.dev/healed"
REPLACE_UNREADY_AFTER = "vmherd.dev/replace-unready-after-seconds"
NEVER = "1h"
SOON = {"startUpFailureThreshold": 99, "minFailingToStartDuration": "1s"}
NO_IMAGE = {"ErrImagePull", "ImagePullBackOff"}
"""The VM is in the first state for a moment, and then in the second."""
BY_THRESHOLD = {"startUpFailureThreshold": 2, "minFailingToStartDuration": NEVER}


@pytest.fixture(scope="module", autouse=True)
def chronic(pool_plane: ControlPlane, pool_controller: ControllerProcess) -> Iterator[PoolNamespace]:
    """A pool whose VM always fails. The pauses between its healings are long, so the pool exists while the other tests
    run.
    """
    assert pool_controller.working
    with new_pool_namespace(pool_plane) as pools:
        pools.make_pool(1, template=quick("image-error"), autohealing=SOON)
        yield pools


def quick(behavior: str = "normal", **template: Any) -> dict[str, Any]:
    return vm_template(vmi_annotations={BEHAVIOR: behavior, READY_AFTER: "100ms"}, **template)


def break_vms(pools: PoolNamespace, *names: str) -> None:
    """Make the image of these VMs missing, and wait until their status shows it."""
    for name in names:
        break_vm(pools, name, "image-error")
    eventually(lambda: all(printable_status_of(pools.vm(name)) in NO_IMAGE for name in names), what=f"{names} fail")


def is_announced(pools: PoolNamespace) -> bool:
    return HEALED in (pools.pool()["metadata"].get("annotations") or {})


def reasons_of(pools: PoolNamespace, name: str) -> list[str]:
    """The reasons for the deletions of a VM, from the Events."""
    prefix = f"Deleted VM {pools.namespace}/{name}: "
    return [event["message"].removeprefix(prefix) for event in pools.events() if event["message"].startswith(prefix)]


def times(pools: PoolNamespace, *, since: int) -> list[datetime]:
    return [record.request_received_timestamp for record in done(pools, "delete", VMS, since=since)]


def wait_until_healed(pools: PoolNamespace, broken: dict[str, str]) -> None:
    """Wait until each VM of `broken` has been recreated with another UID and is ready."""

    def healed() -> bool:
        vms = pools.vms()
        return all(name in vms and is_vm_ready(vms[name]) for name in broken) and not (
            set(uids(vms).values()) & set(broken.values())
        )

    eventually(healed, what=f"{sorted(broken)} are healed")


def test_p15_a_vm_that_reaches_the_failure_threshold_is_recreated_with_its_name(pools: PoolNamespace) -> None:
    pools.make_pool(3, template=quick(), autohealing=BY_THRESHOLD)
    pools.wait_ready(3)
    before = uids(pools.vms())
    position = pools.plane.audit_position()
    break_vm(pools, "pool-1", "fail")
    wait_until_healed(pools, {"pool-1": before["pool-1"]})
    pools.wait_ready(3)
    after = uids(pools.vms())
    assert {name for name in before if after[name] != before[name]} == {"pool-1"}
    assert replacements(pools, since=position) == ["pool-1"]
    eventually(lambda: reasons_of(pools, "pool-1"), what="an Event with the reason")
    (why,) = reasons_of(pools, "pool-1")
    assert re.fullmatch(
        r"healing: it failed to start \d times in a row, the limit is 2; "
        r"it has not been ready for \d+ s, the limit is 3600 s",
        why,
    )


def test_p15_the_failure_of_a_vm_is_visible_for_three_seconds_before_the_vm_is_deleted(pools: PoolNamespace) -> None:
    pools.make_pool(2, template=quick(), autohealing=BY_THRESHOLD)
    pools.wait_ready(2)
    before = uids(pools.vms())
    position = pools.plane.audit_position()
    with versions(pools, f"/apis/kubevirt.io/v1/namespaces/{pools.namespace}/virtualmachines") as seen:
        break_vm(pools, "pool-1", "fail")
        wait_until_healed(pools, {"pool-1": before["pool-1"]})
    shown = [vm["status"] for vm in seen if vm["metadata"]["uid"] == before["pool-1"]]
    failed = [each for each in shown if each.get("startFailure", {}).get("consecutiveFailCount", 0) >= 2]
    assert "CrashLoopBackOff" in {status["printableStatus"] for status in failed}
    (announced,) = [
        record.request_received_timestamp
        for record in pools.requests("patch", since=position)
        if record.resource == "virtualmachinepools" and record.subresource != "status"
    ]
    (deleted,) = times(pools, since=position)
    assert 3.0 <= (deleted - announced).total_seconds() < 30.0


def test_p15_a_vm_that_is_ready_again_after_the_announcement_is_not_deleted(pools: PoolNamespace) -> None:
    pools.make_pool(2, template=quick(), autohealing=SOON)
    pools.wait_ready(2)
    before = uids(pools.vms())
    break_vm(pools, "pool-1", "image-error")
    eventually(lambda: is_announced(pools), what="the healing is announced")
    # The VM may need more than three seconds to become ready. The pool is paused for this time.
    pools.change_pool({"spec": {"paused": True}})
    eventually(lambda: pools.pool_condition("ReplicaPaused"))
    break_vm(pools, "pool-1", "normal")
    pools.wait_ready(2)
    pools.change_pool({"spec": {"paused": False}})
    stays(lambda: uids(pools.vms()) == before, for_s=4.5, what="the VMs")
    assert pools.vms_deleted() == {}


def test_p15_a_running_vm_that_is_never_ready_is_replaced_if_the_pool_requests_it(pools: PoolNamespace) -> None:
    limit = {REPLACE_UNREADY_AFTER: "2"}
    pools.make_pool(2, template=quick(), annotations=limit)
    pools.make_pool(1, name="silent", template=quick("never-ready"))
    pools.wait_ready(2)
    before = uids(pools.vms())
    position = pools.plane.audit_position()
    break_vm(pools, "pool-1", "never-ready")
    wait_until_healed(pools, {"pool-1": before["pool-1"]})
    pools.wait_ready(2)
    assert replacements(pools, since=position) == ["pool-1"]
    eventually(lambda: reasons_of(pools, "pool-1"), what="an Event with the reason")
    (why,) = reasons_of(pools, "pool-1")
    assert why.startswith("healing: it runs, but has not been ready for ")
    assert why.endswith(f"{REPLACE_UNREADY_AFTER} is 2")
    assert "silent-0" not in pools.vms_deleted()


STATES = {
    "pool-0": ("image-error", NO_IMAGE),
    "pool-1": ("unschedulable", {"ErrorUnschedulable"}),
    "pool-2": ("pvc-missing", {"ErrorPvcNotFound"}),
    "pool-3": ("fail", {"CrashLoopBackOff"}),
}


def test_p15_a_vm_in_a_broken_state_is_healed_after_the_duration(pools: PoolNamespace) -> None:
    healing = SOON | {"minFailingToStartDuration": "2s"}
    pools.make_pool(10, template=quick(), autohealing=healing)
    pools.wait_ready(10)
    before = uids(pools.vms())
    position = pools.plane.audit_position()
    began = datetime.now(UTC)
    for name, (behavior, _) in STATES.items():
        break_vm(pools, name, behavior)
    # A VM that gets another dataVolumeTemplate gets its DataVolume at once, even while it runs.
    disk = {"metadata": {"name": "bad", "annotations": {BEHAVIOR: "fail"}}, "spec": {"pvc": {}}}
    volumes = [{"name": "bad", "dataVolume": {"name": "bad"}}]
    change_machine(pools, "pool-4", {"dataVolumeTemplates": [disk], "template": {"spec": {"volumes": volumes}}})
    pools.delete_vmi("pool-4")
    wait_until_healed(pools, {name: before[name] for name in (*STATES, "pool-4")})
    pools.wait_ready(10)
    assert sorted(replacements(pools, since=position)) == sorted((*STATES, "pool-4"))
    assert min((at - began).total_seconds() for at in times(pools, since=position)) > 4.0, (
        "the conditions have whole seconds"
    )
    eventually(lambda: all(reasons_of(pools, name) for name in (*STATES, "pool-4")), what="Events with the reasons")
    for name, (_, states) in (STATES | {"pool-4": ("", {"DataVolumeError"})}).items():
        (why,) = reasons_of(pools, name)
        assert any(why.startswith(f"healing: {state}, and it has not been ready for ") for state in states)
        assert "the limit is 2 s; it failed to start " in why
    assert uids(pools.vms()).keys() == before.keys()
    assert "bad" not in pools.data_volumes()


def test_p15_a_healed_vm_gets_new_disks(pools: PoolNamespace) -> None:
    pools.make_pool(2, template=quick(disks=("root",)), autohealing=SOON)
    pools.wait_ready(2)
    vms, volumes, claims = uids(pools.vms()), uids(pools.data_volumes()), uids(pools.claims())
    hold_volume(pools, "root-1", finalizers=(HOLD,))
    break_vm(pools, "pool-1", "fail")

    def leaving() -> bool:
        return "deletionTimestamp" in pools.vm("pool-1")["metadata"]

    eventually(leaving, what="the VM is deleted")
    assert "foregroundDeletion" in finalizers_of(pools.vm("pool-1"))
    stays(lambda: leaving() and uids(pools.vms()) == vms, for_s=1.0, what="the VM waits for the removal of its disk")
    hold_volume(pools, "root-1", finalizers=())
    wait_until_healed(pools, {"pool-1": vms["pool-1"]})
    pools.wait_ready(2)
    for before, after in ((volumes, pools.data_volumes()), (claims, pools.claims())):
        assert after["root-0"]["metadata"]["uid"] == before["root-0"]
        assert after["root-1"]["metadata"]["uid"] != before["root-1"]
    assert owner_uid(pools.data_volumes()["root-1"]) == pools.vm("pool-1")["metadata"]["uid"]


def test_p15_a_timer_triggers_the_pool_at_the_due_time(
    pools: PoolNamespace, pool_controller: ControllerProcess
) -> None:
    healing = SOON | {"minFailingToStartDuration": "4s"}
    pools.make_pool(2, template=quick(), autohealing=healing)
    pools.wait_ready(2)
    uid = pools.vm("pool-0")["metadata"]["uid"]
    position = pools.plane.audit_position()
    since = datetime.now(UTC)
    break_vm(pools, "pool-0", "unschedulable")
    eventually(lambda: printable_status_of(pools.vm("pool-0")) == "ErrorUnschedulable")
    version = steady(lambda: pools.vm("pool-0")["metadata"]["resourceVersion"])
    stays(
        lambda: pools.vm("pool-0")["metadata"]["resourceVersion"] == version, for_s=1.0, what="the VM stays unchanged"
    )
    wait_until_healed(pools, {"pool-0": uid})
    (at,) = times(pools, since=position)
    assert 5.0 < (at - since).total_seconds() < 30.0
    assert pool_controller.working


def test_p15_healing_stops_if_too_many_fail_together_and_one_event_reports_it(pools: PoolNamespace) -> None:
    pools.make_pool(4, template=quick(), autohealing=SOON)
    pools.wait_ready(4)
    before = uids(pools.vms())
    pools.change_pool({"spec": {"paused": True}})
    eventually(lambda: pools.pool_condition("ReplicaPaused"))
    break_vms(pools, "pool-0", "pool-1", "pool-2")
    pools.change_pool({"spec": {"paused": False}})
    eventually(lambda: pools.told("HealingHeld")["pool"] == 1, what="an Event reports the limit")
    stays(lambda: uids(pools.vms()) == before, for_s=1.5, what="no healing")
    assert not is_announced(pools)
    assert pools.told("HealingHeld") == {"pool": 1}, "it is told once"
    break_vm(pools, "pool-0", "normal")
    wait_until_healed(pools, {name: before[name] for name in ("pool-1", "pool-2")})
    assert pools.vm("pool-0")["metadata"]["uid"] == before["pool-0"], "who got well stays"
    pools.wait_ready(4)


def test_p15_a_terminating_pool_heals_no_vm(pools: PoolNamespace) -> None:
    pools.make_pool(2, template=quick(), autohealing=SOON, finalizers=(HOLD,))
    pools.wait_ready(2)
    pools.change_pool({"spec": {"paused": True}})
    eventually(lambda: pools.pool_condition("ReplicaPaused"))
    break_vms(pools, "pool-0")
    before = uids(pools.vms())
    pools.kubectl("delete", "vmpool", "pool", "--wait=false")
    pools.change_pool({"spec": {"paused": False}})
    stays(lambda: uids(pools.vms()) == before and pools.pool_exists(), for_s=2.0)
    assert pools.requests("delete") == []
    assert not is_announced(pools)
    pools.change_pool({"metadata": {"finalizers": None}})
    eventually(lambda: not pools.vms(), what="the VMs go with the pool")


def test_p15_every_event_belongs_to_an_action_that_was_carried_out(pools: PoolNamespace) -> None:
    pools.make_pool(3, template=vm_template(vmi_annotations={BEHAVIOR: "never-ready"}), autohealing=SOON)
    pools.wait_for_ordinals(0, 1, 2, ready=False)
    eventually(lambda: len(pools.vmis()) == 3)
    for memory in (1, 2, 3):
        pools.change_pool({"spec": {"maxUnavailable": memory}})
        eventually(lambda: pools.pool_status().get("observedGeneration") == pools.pool()["metadata"]["generation"])
    stays(lambda: len(pools.vms()) == 3, for_s=1.5)
    assert pools.requests("delete") == []
    assert not is_announced(pools)
    eventually(lambda: pools.reasons().keys() == {"SuccessfulCreate"}, what="Events about the creates, and no others")


def test_p15_the_same_ordinal_is_healed_again_after_a_pause(chronic: PoolNamespace) -> None:
    """This test measures only the first pause. A unit test with virtual time checks the longer pauses."""
    first, second, *_ = eventually(
        lambda: (found := times(chronic, since=chronic.since)) and len(found) >= 2 and found, within_s=60
    )
    # The second pause is twice as long as the first.
    assert 9.0 < (second - first).total_seconds() < 19.0
    # The status follows the deletion, and the new VM keeps it until it fails.
    eventually(lambda: chronic.pool_status()["printableStatus"] == "Healing", what="the status is Healing")
