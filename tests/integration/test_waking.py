"""R16, P19 and G4: only relevant changes trigger a reconciliation, and nothing is requested at rest.

R11, P17: the status is written when it changes and only then.
"""

import time
from collections import Counter
from pathlib import Path

import pytest

from controller.runtime.triggers import COUNT_DELAY_S
from sandbox.audit import read_records
from tests.controlplane.documents import BEHAVIOR, vm_template
from tests.controlplane.namespace import Namespace, PoolNamespace, SetNamespace, controller_for
from tests.controlplane.waits import eventually, reacts

pytestmark = pytest.mark.cluster

REST_S = 5.0
RENEWED_EACH_S = 1.0
"""The retry period of the lease of the tests' controllers."""


def test_r16_p19_an_irrelevant_change_triggers_no_pass(owner: Namespace) -> None:
    owner.make(2)
    owner.wait_ready(2)
    owner.settle()
    before, name = owner.passes, min(owner.vmis())
    owner.vmis.change(name, {"metadata": {"annotations": {"note": "hello"}, "finalizers": ["test.vmherd.dev/hold"]}})
    owner.vmis.change(name, {"status": {"guestOSInfo": {"name": "Fedora"}}})
    owner.make_vmi("stranger", labels={"app": "other"})
    owner.vmis.change("stranger", {"metadata": {"labels": {"more": "yes"}}})
    owner.make_vm("stranger", labels={"app": "other"}, template=vm_template(running=False))
    owner.settle()
    assert owner.passes == before
    owner.vmis.change(name, {"metadata": {"finalizers": None}})
    owner.vmis.delete(name)
    reacts(lambda: owner.passes > before, what="a deletion triggers a pass")


def test_p19_at_rest_there_are_no_requests(pools: PoolNamespace) -> None:
    pools.make(10)
    pools.wait_ready(10)
    pools.make(2, name="degraded", template=vm_template(vmi_annotations={BEHAVIOR: "never-ready"}))
    reacts(lambda: pools.status("degraded").get("replicas") == 2)
    phases = ["Running"] * 12
    eventually(
        lambda: [vmi["status"].get("phase") for vmi in pools.vmis().values()] == phases,
        within_s=20,
        what="all VMIs run",
    )
    pools.settle(events=True, no_timer_within_s=REST_S)
    at_rest, passes = pools.plane.audit_position(), pools.passes
    time.sleep(REST_S)
    asked = Counter((each.verb, each.object_ref.name) for each in pools.requests(since=at_rest))
    assert asked <= Counter({("get", "pool"): 1, ("get", "degraded"): 1}), "only a look for a second writer"
    assert pools.passes == passes


def test_r16_at_rest_there_are_no_requests_but_watches_and_the_lease(
    idle_namespace: SetNamespace, tmp_path: Path
) -> None:
    sets = idle_namespace
    with controller_for(sets, tmp_path):
        sets.make(20)
        sets.wait_for(20)
        sets.play_all()
        reacts(lambda: sets.status().get("readyReplicas") == 20)
        sets.settle(events=True, no_timer_within_s=REST_S)
        passes, at_rest, rests_from = sets.passes, sets.plane.audit_position(), time.monotonic()
        time.sleep(REST_S)
        # The audit log has a watch when the watch ends. The watches of this test have not ended.
        asked = Counter(
            (record.verb, record.resource)
            for record in read_records(sets.plane.audit_log, at_rest)
            if record.user_agent.startswith("vmherd/")
        )
        renewals = (time.monotonic() - rests_from) / RENEWED_EACH_S
        # A process outside the cluster looks once a minute for another leader.
        # Each process looks once a minute for another writer of the set.
        looks = {("list", "leases"), ("get", "virtualmachineinstancereplicasets")}
        assert asked.keys() - looks == {("patch", "leases")}, asked
        assert all(asked[look] <= 1 for look in looks)
        assert asked["patch", "leases"] <= renewals + 2, "the lease is renewed too often"
        assert sets.passes == passes


def test_r11_one_hundred_vmis_that_become_ready_are_a_few_status_writes(sets: SetNamespace) -> None:
    sets.make(100)
    sets.wait_for(100)
    sets.settle()
    before, began = sets.plane.audit_position(), time.monotonic()
    sets.play_all()
    eventually(lambda: sets.status().get("readyReplicas") == 100, within_s=20, what="all are ready")
    took_s = time.monotonic() - began
    writes = [record for record in sets.requests("patch", since=before) if record.subresource == "status"]
    assert len(writes) <= 10 + took_s / COUNT_DELAY_S
