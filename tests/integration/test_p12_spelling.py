"""P12: another spelling of the same template changes nothing: no VM, no VMI, no disk, no revision."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from tests.integration.controller_process import eventually
from tests.integration.pool_namespace import PoolNamespace, uids, vm_template

pytestmark = pytest.mark.cluster

OWNED = {"virtualmachines", "virtualmachineinstances", "datavolumes", "persistentvolumeclaims", "controllerrevisions"}


def plain() -> dict[str, Any]:
    """A template as a person writes it."""
    template = vm_template(disks=("root",))
    machine = template["spec"]["template"]["spec"]
    machine["domain"] = {"devices": machine["domain"]["devices"], "memory": {"guest": "1024Mi"}}
    machine["terminationGracePeriodSeconds"] = 0
    template["spec"]["dataVolumeTemplates"][0]["spec"]["pvc"]["resources"]["requests"]["storage"] = "1024Mi"
    return template


def as_go_writes(template: dict[str, Any]) -> dict[str, Any]:
    """The same template after a current Go client has read and written it."""
    written = deepcopy(template)
    machine = written["spec"]["template"]["spec"]
    machine["domain"]["resources"] = {}
    machine["domain"]["memory"]["guest"] = "1Gi"
    written["spec"]["dataVolumeTemplates"][0]["spec"]["pvc"]["resources"]["requests"]["storage"] = "1Gi"
    return written


def as_older_go_writes(template: dict[str, Any]) -> dict[str, Any]:
    """The same template, read and written by a Go client with Kubernetes libraries before 0.34."""
    written = as_go_writes(template)
    no_time = {"creationTimestamp": None}
    written["metadata"] |= no_time
    written["spec"]["template"]["metadata"] |= no_time
    written["spec"]["dataVolumeTemplates"][0]["metadata"] |= no_time
    return written


def otherwise(template: dict[str, Any]) -> dict[str, Any]:
    """The same template with other units, another order of volumes, and empty values without a meaning."""
    written = deepcopy(template)
    machine = written["spec"]["template"]["spec"]
    machine["domain"]["memory"]["guest"] = "1048576Ki"
    machine["domain"]["cpu"] = None
    machine["hostname"] = ""
    machine["nodeSelector"] = {}
    machine["tolerations"] = []
    machine["volumes"] = list(reversed(machine["volumes"]))
    written["spec"]["running"] = written["spec"].pop("runStrategy") == "Always"
    return written


def owned_by_the_pool(pools: PoolNamespace) -> dict[str, dict[str, str]]:
    found = (pools.vms(), pools.vmis(), pools.data_volumes(), pools.claims(), pools.revisions())
    return {kind: uids(items) for kind, items in zip(sorted(OWNED), found, strict=True)}


def touched(pools: PoolNamespace, since: int) -> list[tuple[str, str, str]]:
    """The controller's writes to the pool's VMs, VMIs, disks and revisions since this position in the audit log."""
    records = pools.requests("create", "update", "patch", "delete", since=since)
    return [(each.verb, each.resource, each.name) for each in records if each.resource in OWNED]


def wait_until_looked_at(pools: PoolNamespace) -> None:
    def there() -> bool:
        pool = pools.pool()
        return pool["status"].get("observedGeneration") == pool["metadata"]["generation"]

    eventually(there, what="a pass for the pool")
    pools.wait_until_seen()


@pytest.mark.parametrize("spelled", [as_go_writes, as_older_go_writes, otherwise])
def test_p12_another_spelling_of_a_pool_changes_nothing(pools: PoolNamespace, spelled: Any) -> None:
    pools.make_pool(2, template=plain(), scaleInStrategy={"proactive": {"statePreservation": "Disabled"}})
    pools.wait_ready(2)
    before, position = owned_by_the_pool(pools), pools.plane.audit_position()
    generation = pools.pool()["metadata"]["generation"]
    pools.change_template(spelled(plain()))
    wait_until_looked_at(pools)
    assert pools.pool()["metadata"]["generation"] > generation, "the server took it for a change"
    assert owned_by_the_pool(pools) == before
    assert [each for each in touched(pools, position) if "999999" not in each[2]] == []


def test_p12_kubectl_apply_and_a_go_client_may_take_turns(pools: PoolNamespace) -> None:
    """A user applies a manifest. A Go client scales the pool by writing the whole object. The user applies the manifest
    again.
    """
    manifest = {
        "apiVersion": "pool.kubevirt.io/v1beta1",
        "kind": "VirtualMachinePool",
        "metadata": {"name": "pool"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "pool"}},
            "virtualMachineTemplate": plain(),
        },
    }
    pools.kubectl("apply", "-f", "-", stdin=manifest)
    pools.wait_ready(2)
    before, position = owned_by_the_pool(pools), pools.plane.audit_position()
    pools.change_template(as_go_writes(plain()))
    wait_until_looked_at(pools)
    again = manifest | {"metadata": {"name": "pool", "labels": {"applied": "again"}}}
    pools.kubectl("apply", "-f", "-", stdin=again)
    wait_until_looked_at(pools)
    assert owned_by_the_pool(pools) == before
    assert [each for each in touched(pools, position) if "999999" not in each[2]] == []


def test_p12_an_empty_object_with_a_meaning_is_rolled_out(pools: PoolNamespace) -> None:
    pools.make_pool(1, template=plain())
    pools.wait_ready(1)
    before = uids(pools.vmis())
    changed = plain()
    changed["spec"]["template"]["spec"]["domain"]["devices"]["rng"] = {}
    pools.change_template(changed)
    eventually(lambda: uids(pools.vmis()) not in ({}, before), what="a new VMI")
    pools.wait_ready(1)
    assert "rng" in pools.vmis()["pool-0"]["spec"]["domain"]["devices"]
