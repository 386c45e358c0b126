"""P4: the contents of a new VM, and the number of requests if the server refuses VMs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.controller_process import eventually, stays
from tests.integration.pool_namespace import (
    FINALIZER,
    POOL_LABELS,
    REVISION,
    PoolNamespace,
    finalizers_of,
    vm_template,
)
from tests.integration.quota import allow
from tests.integration.renewal import annotations_of

pytestmark = pytest.mark.cluster

VMS = "virtualmachines"


def test_p4_a_vm_has_the_contents_of_the_template_and_belongs_to_the_pool(pools: PoolNamespace) -> None:
    template = vm_template(vmi_labels={"tier": "web"}, vmi_annotations={"inner": "note"})
    template["metadata"] |= {"annotations": {"note": "kept"}}
    pool = pools.make_pool(1, template=template)
    vm = pools.wait_for_ordinals(0)["pool-0"]
    (revision,) = pools.revisions()
    metadata, vmi_template = vm["metadata"], vm["spec"]["template"]
    assert vm["apiVersion"] == "kubevirt.io/v1"
    assert metadata["labels"] == {**POOL_LABELS, REVISION: revision}
    assert annotations_of(metadata) == {"note": "kept"}
    assert FINALIZER not in finalizers_of(vm), "without kept disks, a VM needs no finalizer"
    assert metadata["ownerReferences"] == [
        {
            "apiVersion": "pool.kubevirt.io/v1beta1",
            "kind": "VirtualMachinePool",
            "name": "pool",
            "uid": pool["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert vmi_template["metadata"]["labels"] == {**POOL_LABELS, "tier": "web", REVISION: revision}
    assert vmi_template["metadata"]["annotations"] == {"inner": "note"}
    assert pools.vmis()["pool-0"]["metadata"]["labels"][REVISION] == revision, "and so has what runs"
    (kept,) = pools.revisions().values()
    assert kept["metadata"]["ownerReferences"][0]["uid"] == pool["metadata"]["uid"]


def test_p4_the_spec_equals_that_of_the_template_including_unknown_fields(pools: PoolNamespace) -> None:
    unknown = {"z": [9007199254740993, {"none": {}}, 2.50, 1e22], "a": "é", "empty": "", "no": False, "list": []}
    template = vm_template(disks=("root",), vmi_spec={"unknownToUs": unknown}, alsoUnknown=unknown)
    template["spec"]["template"]["metadata"]["name"] = "left-to-kubevirt"
    template["spec"]["template"]["beside"] = unknown
    pools.make_pool(1, template=template)
    pools.wait_for_ordinals(0)
    wanted, (found,) = pools.specs_exactly()
    assert found["template"]["metadata"]["labels"].pop(REVISION)
    assert found.pop("dataVolumeTemplates")[0]["metadata"].pop("name") == "root-0"
    assert wanted.pop("dataVolumeTemplates")[0]["metadata"].pop("name") == "root"
    assert found["template"]["spec"]["volumes"][0].pop("dataVolume") == {"name": "root-0"}
    assert wanted["template"]["spec"]["volumes"][0].pop("dataVolume") == {"name": "root"}
    assert found == wanted


def test_p4_labels_and_annotations_are_the_only_metadata_of_the_template_that_count(pools: PoolNamespace) -> None:
    template = vm_template()
    template["metadata"] |= {
        "name": "named",
        "generateName": "named-",
        "namespace": "elsewhere",
        "finalizers": ["test.vmherd.dev/from-the-template"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "boss", "uid": "1"}],
        "creationTimestamp": None,
    }
    pools.make_pool(2, template=template)
    for vm in pools.wait_for_ordinals(0, 1).values():
        assert vm["metadata"]["namespace"] == pools.namespace
        assert "generateName" not in vm["metadata"]
        assert len(vm["metadata"]["ownerReferences"]) == 1
        assert "test.vmherd.dev/from-the-template" not in finalizers_of(vm)
    assert {record.code for record in pools.requests("create")} == {201}


def test_p4_a_full_quota_costs_few_requests_and_few_events(pools: PoolNamespace) -> None:
    allow(pools, 0, of=VMS)
    pools.make_pool(200)
    condition = eventually(lambda: pools.pool_condition("ReplicaFailure"), what="the failure is in the status")
    assert condition["reason"] == "FailedScaleOut"
    assert "exceeded quota: few" in condition["message"]
    stays(lambda: not pools.vms(), for_s=2.0)
    eventually(lambda: len(creates(pools)) > 3, what="the create is repeated")
    # The backoff starts at 5 ms and doubles: ten tries in five seconds, with one create each.
    assert len(creates(pools)) < 15
    assert {record.code for record in creates(pools)} == {403}
    eventually(lambda: pools.reasons()["FailedCreate"] > 1, what="the Event counts up")
    assert len([event for event in pools.events() if event["reason"] == "FailedCreate"]) == 1, "one Event"


def test_p4_the_revision_and_the_pools_finalizer_exist_before_the_first_vm(pools: PoolNamespace) -> None:
    pools.make_pool(3)
    pools.wait_ready(3)
    records = sorted(pools.requests("create", "patch"), key=lambda each: each.request_received_timestamp)
    written = [(each.verb, each.resource) for each in records if not each.subresource]
    first = written.index(("create", VMS))
    assert sorted(written[:first]) == [("create", "controllerrevisions"), ("patch", "virtualmachinepools")]


def creates(pools: PoolNamespace) -> list[Any]:
    return [record for record in pools.requests("create") if record.resource == VMS]
