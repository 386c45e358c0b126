"""R14, P12, P13, P16: the requests of an update."""

from collections import Counter
from copy import deepcopy
from typing import Any

import pytest

from tests.controlplane.documents import (
    READY_AFTER,
    data_volume_template,
    is_observed,
    pool_document,
    uids,
    vm_template,
)
from tests.controlplane.namespace import PoolNamespace, SetNamespace
from tests.controlplane.refusals import allow
from tests.controlplane.waits import reacts
from tests.controlplane.watch import watched
from tests.integration.renewal import VMS, done, memories, restarts

pytestmark = pytest.mark.cluster

ROLLING = "vmherd.dev/rolling-update"
NOTED = "vmherd.dev/adopted-template"
HALTED = {"runStrategy": "Halted"}
UPDATED_WITHIN_S = 60.0


def quick(**template: Any) -> dict[str, Any]:
    return vm_template(vmi_annotations={READY_AFTER: "50ms"}, **template)


def test_r14_a_set_that_is_taken_over_replaces_its_vmis_only_for_a_new_template(sets: SetNamespace) -> None:
    for name in ("one", "two"):
        sets.make_vmi(name)
    sets.make(2, annotations={ROLLING: "maxUnavailable=2"})
    reacts(lambda: NOTED in sets.read()["metadata"].get("annotations", {}), what="the template is noted")
    reacts(lambda: sets.status().get("updatedReplicas") == 2)
    sets.settle()
    assert sets.alive().keys() == {"one", "two"}, "the template is unchanged"
    sets.change_memory("128M")
    reacts(lambda: sets.status().get("updatedReplicas") == 2 and not {"one", "two"} & sets.alive().keys())


def test_r14_a_surge_waits_for_a_quota_and_deletes_no_vmi_before(pools: PoolNamespace) -> None:
    sets = pools.sets
    sets.make(2, annotations={ROLLING: "maxSurge=1,maxUnavailable=0"})
    sets.wait_ready(2)
    before = uids(sets.alive())
    allow(sets, 2)
    sets.change_memory("128M")
    reacts(lambda: "exceeded quota" in sets.status().get("problem", ""), what="PROBLEM names the quota")
    assert (uids(sets.alive()), sets.requests("delete")) == (before, [])
    reacts(lambda: sets.reasons()["FailedCreate"], what="an Event")
    allow(sets, 3)
    sets.wait_until_updated(2)
    sets.wait_ready(2)
    assert not set(before.values()) & set(uids(sets.alive()).values())


def test_p12_each_outdated_vm_gets_one_patch_and_other_vms_get_none(pools: PoolNamespace) -> None:
    pools.make(10, template=vm_template(**HALTED))
    pools.wait_until_updated(10)
    position = pools.plane.audit_position()
    pools.change_memory("128M")
    pools.wait_until_updated(10)
    patched = [record.name for record in done(pools, "patch", VMS, since=position)]
    assert sorted(patched) == [f"pool-{ordinal}" for ordinal in range(10)]
    assert pools.requests("update", since=position) == []
    position = pools.plane.audit_position()
    pools.change({"spec": {"maxUnavailable": 3}})
    pools.settle()
    assert done(pools, "patch", VMS, since=position) == []


def plain() -> dict[str, Any]:
    """A template as a person writes it."""
    template = vm_template(disks=("root",))
    machine = template["spec"]["template"]["spec"]
    machine["domain"] = {"devices": machine["domain"]["devices"], "memory": {"guest": "1024Mi"}}
    template["spec"]["dataVolumeTemplates"] = [data_volume_template("root", size="1024Mi")]
    return template


def as_go_writes(template: dict[str, Any]) -> dict[str, Any]:
    """The same template after a current Go client has read and written it."""
    written = deepcopy(template)
    domain = written["spec"]["template"]["spec"]["domain"]
    domain |= {"resources": {}, "memory": {"guest": "1Gi"}}
    written["spec"]["dataVolumeTemplates"] = [data_volume_template("root", size="1Gi")]
    return written


def test_p12_kubectl_apply_and_a_go_client_may_take_turns(pools: PoolNamespace) -> None:
    """A user applies a manifest. A Go client writes the whole object. The user applies the manifest again."""
    manifest = pool_document(2, template=plain())
    pools.kubectl("apply", "-f", "-", stdin=manifest)
    pools.wait_ready(2)
    pools.settle(events=True)
    position = pools.plane.audit_position()
    pools.change_template(as_go_writes(plain()))
    reacts(lambda: is_observed(pools.read()))
    again = manifest | {"metadata": {"name": "pool", "labels": {"applied": "again"}}}
    pools.kubectl("apply", "-f", "-", stdin=again)
    pools.settle()
    assert pools.read()["metadata"]["generation"] == 3, "the server took both for changes"
    written = pools.requests("create", "update", "patch", "delete", since=position)
    assert {(each.resource, each.subresource) for each in written} == {("virtualmachinepools", "status")}


def test_p13_vms_that_kubevirt_does_not_start_again_are_restarted_through_the_subresource(pools: PoolNamespace) -> None:
    pools.make(2, template=quick(runStrategy="RerunOnFailure"), maxUnavailable=1)
    pools.wait_ready(2)
    position = pools.plane.audit_position()
    with watched(pools, pools.vmis) as seen:
        pools.change_memory("128M")
        pools.wait_ready(2, within_s=UPDATED_WITHIN_S)
    assert set(memories(pools.vmis()).values()) == {"128M"}
    assert seen.least_ready() == {"pool": 1}
    assert restarts(pools, since=position) == []
    sent = [record.name for record in pools.requests("update", since=position)]
    assert sorted(sent) == ["pool-0", "pool-1"], "one request for each VM"


def test_p16_a_new_pool_gets_its_finalizer_first_then_revision_vms_and_status(pools: PoolNamespace) -> None:
    pools.make(5)
    pools.wait_ready(5)
    written = sorted(pools.requests("create", "patch"), key=lambda each: each.request_received_timestamp)
    first = list(dict.fromkeys((each.resource, each.subresource) for each in written))
    assert first == [
        ("virtualmachinepools", ""),
        ("controllerrevisions", ""),
        (VMS, ""),
        ("virtualmachinepools", "status"),
    ]
    assert Counter(each.code for each in pools.requests("create")) == {201: 6}, "nothing is asked for twice"
