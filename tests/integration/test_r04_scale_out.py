"""R4 and R5: how VMIs are created, and their names and contents."""

from __future__ import annotations

import pytest

from tests.integration.controller_process import LABELS, ReplicaSetNamespace, eventually
from tests.integration.quota import allow

pytestmark = pytest.mark.cluster


def test_r4_vmis_within_the_quota_are_created_and_the_rest_after_it_is_raised(sets: ReplicaSetNamespace) -> None:
    allow(sets, 5)
    sets.make_set(12)
    eventually(lambda: len(sets.vmis()) == 5, what="five VMIs, as the quota allows")
    allow(sets, 20)
    sets.wait_for(12)
    created = [record for record in sets.requests("create") if record.code == 201]
    assert len(created) == 12
    eventually(lambda: sets.condition("ReplicaFailure") is None, what="the failure is cleared")


def test_r5_a_vmi_has_the_contents_of_the_template_and_belongs_to_the_set(sets: ReplicaSetNamespace) -> None:
    unknown = {"z": [9007199254740993, {"none": None}, 2.50], "a": "é"}
    spec = {
        "domain": {"resources": {"requests": {"memory": "64M"}}, "unknownToUs": unknown},
        "volumes": [{"name": "d", "containerDisk": {"image": "kubevirt/cirros"}}],
    }
    owner = sets.make_set(1, spec=spec, template_metadata={"annotations": {"note": "kept"}, "namespace": "elsewhere"})
    (vmi,) = sets.wait_for(1).values()
    assert vmi["apiVersion"] == "kubevirt.io/v1"
    template, specs = sets.exactly()
    assert specs == [template]
    assert vmi["spec"]["domain"]["unknownToUs"]["z"][0] == 9007199254740993
    assert vmi["metadata"]["namespace"] == sets.namespace
    assert vmi["metadata"]["annotations"] == {"note": "kept"}
    assert vmi["metadata"]["labels"].items() >= LABELS.items()
    assert vmi["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstanceReplicaSet",
            "name": "herd",
            "uid": owner["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
