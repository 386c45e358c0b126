"""P10: disks that outlive their VMs, and disks that are deleted together with their VMs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.controlplane import ControlPlane
from tests.cluster import Kubectl
from tests.integration.controller_process import PATIENT_LEASE, controller_process, eventually, owner_uid, stays, steady
from tests.integration.pool_namespace import FINALIZER, PoolNamespace, finalizers_of, uids, vm_template

pytestmark = pytest.mark.cluster

DATA_VOLUMES = "datavolumes.cdi.kubevirt.io"
DESCENDING = {"selectionPolicy": {"sortPolicy": "DescendingOrder"}}
PROACTIVE: dict[str, dict[str, Any]] = {
    "offline": {"proactive": {"statePreservation": "Offline", **DESCENDING}},
    "online": {"proactive": {"statePreservation": "Online", **DESCENDING}},
    "disabled": {"proactive": {"statePreservation": "Disabled", **DESCENDING}},
    "unstated": {"proactive": DESCENDING},
}
LET_GO: dict[str, dict[str, Any]] = {
    "offline": {"opportunistic": {"statePreservation": "Offline"}},
    "online": {"opportunistic": {"statePreservation": "Online"}},
    "disabled": {"opportunistic": {"statePreservation": "Disabled"}},
    "unmanaged": {"unmanaged": {}},
}
KEPT = ("offline", "online")


def make_pools(
    pools: PoolNamespace, strategies: dict[str, dict[str, Any]], *, replicas: int, run_strategy: str = "Always"
) -> None:
    """Create a pool for each strategy. Each VM has a disk `<pool>-root-<ordinal>`. Wait for all disks."""
    for name, strategy in strategies.items():
        template = vm_template(disks=(f"{name}-root",), runStrategy=run_strategy)
        pools.make_pool(replicas, name=name, template=template, scaleInStrategy=strategy)
    wait_for(pools, strategies, replicas, ready=run_strategy == "Always")
    everything = len(strategies) * replicas
    eventually(lambda: [len(each) for each in storage(pools)] == [everything, everything], what="all disks exist")


def wait_for(
    pools: PoolNamespace, names: dict[str, Any], replicas: int, *, ready: bool = True
) -> dict[str, dict[str, Any]]:
    return pools.wait_for_vms(*(f"{name}-{ordinal}" for name in names for ordinal in range(replicas)), ready=ready)


def storage(pools: PoolNamespace) -> tuple[dict[str, str], dict[str, str]]:
    """The UIDs of the DataVolumes and of the PVCs, by their names."""
    return uids(pools.data_volumes()), uids(pools.claims())


def kept_of(names: dict[str, str], ordinal: int) -> dict[str, str]:
    """The disks that stay when the VMs with this ordinal are deleted."""
    return {
        name: uid for name, uid in names.items() if not name.endswith(f"-{ordinal}") or name.partition("-")[0] in KEPT
    }


def test_p10_disks_outlive_a_vm_that_is_scaled_in_and_the_next_vm_of_its_ordinal_uses_them(
    pools: PoolNamespace,
) -> None:
    make_pools(pools, PROACTIVE, replicas=2)
    volumes, claims = storage(pools)
    before = uids(pools.vms())
    for name in PROACTIVE:
        pools.scale(1, name=name)
    wait_for(pools, PROACTIVE, 1)
    kept = kept_of(volumes, 1), kept_of(claims, 1)
    eventually(lambda: storage(pools) == kept, what="disks without preservation go")
    stays(lambda: storage(pools) == kept, for_s=1.0, what="preserved disks stay")
    assert {name: owner_uid(volume) for name, volume in pools.data_volumes().items()} == {
        "offline-root-0": before["offline-0"],
        "offline-root-1": "",
        "online-root-0": before["online-0"],
        "online-root-1": "",
        "disabled-root-0": before["disabled-0"],
        "unstated-root-0": before["unstated-0"],
    }
    assert owner_uid(pools.claims()["offline-root-1"]) == volumes["offline-root-1"], "it stays its DataVolume's"
    for name in PROACTIVE:
        pools.scale(2, name=name)
    after = uids(wait_for(pools, PROACTIVE, 2))
    again = storage(pools)
    assert {name for name in volumes if again[0][name] == volumes[name]} == set(kept[0])
    assert {name for name in claims if again[1][name] == claims[name]} == set(kept[1])
    for name in PROACTIVE:
        assert owner_uid(pools.data_volumes()[f"{name}-root-1"]) == after[f"{name}-1"] != before[f"{name}-1"]


def delete_vms(pools: PoolNamespace, *names: str) -> None:
    """Delete VMs as a user, and wait until they are gone. The pool may recreate them."""
    before = {uid for name, uid in uids(pools.vms()).items() if name in names}
    pools.kubectl("delete", "vm", *names, "--wait=false")
    eventually(lambda: not before & set(uids(pools.vms()).values()), what=f"{names} are gone")


def test_p10_a_vm_that_its_user_deletes_is_recreated_with_its_preserved_disks(pools: PoolNamespace) -> None:
    # A new VM may run on the old disks for a while, until the garbage collector deletes them.
    make_pools(pools, LET_GO, replicas=2, run_strategy="Halted")
    volumes, claims = storage(pools)
    delete_vms(pools, *(f"{name}-0" for name in LET_GO))
    vms = uids(wait_for(pools, LET_GO, 2, ready=False))
    wanted = {f"{pool}-root-{ordinal}": vms[f"{pool}-{ordinal}"] for pool in LET_GO for ordinal in (0, 1)}

    def there() -> bool:
        return {name: owner_uid(volume) for name, volume in pools.data_volumes().items()} == wanted

    eventually(there, what="each VM has its disk")
    eventually(lambda: storage(pools)[1].items() & claims.items() == kept_of(claims, 0).items())
    assert storage(pools)[0].items() & volumes.items() == kept_of(volumes, 0).items()


def test_p10_disks_outlive_a_vm_that_its_user_deletes_from_a_pool_that_is_too_large(pools: PoolNamespace) -> None:
    make_pools(pools, LET_GO, replicas=3)
    volumes, claims = storage(pools)
    for name in LET_GO:
        pools.scale(1, name=name)
    eventually(lambda: {status.get("observedGeneration") for status in pools.pool_statuses().values()} == {2})
    delete_vms(pools, *(f"{name}-1" for name in LET_GO))
    kept = kept_of(volumes, 1), kept_of(claims, 1)
    eventually(lambda: storage(pools) == kept)
    stays(lambda: storage(pools) == kept and len(pools.vms()) == 2 * len(LET_GO), for_s=0.7)


def test_p10_disks_are_preserved_before_the_finalizer_is_removed(pools: PoolNamespace) -> None:
    claim = {"name": "claim", "persistentVolumeClaim": {"claimName": "root"}}
    template = vm_template(disks=("root",), volumes=(claim,))
    pools.make_pool(2, template=template, scaleInStrategy=PROACTIVE["offline"])
    pools.wait_for_ordinals(0, 1)
    position = pools.plane.audit_position()
    pools.scale(1)
    pools.wait_for_ordinals(0)
    asked = steady(lambda: pools.requests("delete", "patch", since=position))
    # A patch with a version conflict is refused and retried.
    done = sorted((each for each in asked if each.code == 200), key=lambda each: each.request_received_timestamp)
    order = [(each.verb, each.resource) for each in done if each.resource != "virtualmachinepools"]
    assert order == [("delete", "virtualmachines"), ("patch", "datavolumes"), ("patch", "virtualmachines")]


def test_p10_only_the_reference_of_this_vm_is_removed_and_only_from_its_own_disks(pools: PoolNamespace) -> None:
    """The deleted VM owns three PVCs and uses two of them: `own` and `shared`. `shared` and `unnamed` also have other
    owners.
    """
    volumes = tuple({"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("own", "shared"))
    for name in ("own", "shared", "unnamed"):
        pools.make_claim(name)
    pools.make_pool(2, template=vm_template(volumes=volumes), scaleInStrategy=PROACTIVE["offline"])
    vms = pools.wait_for_ordinals(0, 1)
    boss = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "boss",
        "uid": pools.make_config_map("boss")["metadata"]["uid"],
    }
    first, second = (owned_by_vm(vms[name]) for name in ("pool-0", "pool-1"))
    pools.change_claim("own", {"metadata": {"ownerReferences": [second]}})
    pools.change_claim("shared", {"metadata": {"ownerReferences": [first, second, boss]}})
    pools.change_claim("unnamed", {"metadata": {"ownerReferences": [second, boss]}})
    pools.scale(1)
    pools.wait_for_ordinals(0)
    eventually(
        lambda: len(pools.claims()["unnamed"]["metadata"]["ownerReferences"]) == 1,
        what="the collector removes its reference",
    )
    stays(lambda: pools.claims().keys() == {"own", "shared", "unnamed"}, for_s=0.7)
    assert "ownerReferences" not in pools.claims()["own"]["metadata"]
    assert pools.claims()["shared"]["metadata"]["ownerReferences"] == [first, boss]


def test_p10_preserved_disks_outlive_the_pool(pools: PoolNamespace) -> None:
    make_pools(pools, PROACTIVE, replicas=2)
    volumes, claims = storage(pools)
    pools.kubectl("delete", "vmpool", *PROACTIVE, "--timeout=60s")
    eventually(lambda: not pools.vms(), what="the VMs go")
    kept = tuple(
        {name: uid for name, uid in each.items() if name.partition("-")[0] in KEPT} for each in (volumes, claims)
    )
    eventually(lambda: storage(pools) == kept)
    stays(lambda: storage(pools) == kept, for_s=0.7)


@pytest.fixture
def without_cdi(own_plane: ControlPlane, tmp_path: Path) -> Iterator[PoolNamespace]:
    """A cluster without the kind DataVolume, and a controller for this cluster."""
    kubectl = Kubectl(own_plane.kubeconfig)
    kubectl("delete", "crd", DATA_VOLUMES)
    pools = PoolNamespace(own_plane, "bare")
    kubectl("create", "namespace", pools.namespace)
    with controller_process(own_plane, tmp_path, *PATIENT_LEASE) as program:
        yield pools
        assert program.working


def test_p10_without_cdi_claims_are_preserved_and_data_volumes_too_once_they_exist(without_cdi: PoolNamespace) -> None:
    pools = without_cdi
    volume = {"name": "claim", "persistentVolumeClaim": {"claimName": "claim"}}
    template = vm_template(disks=("root",), volumes=(volume,))
    definition = Path(__file__).parents[2] / "sandbox/crds/cdi.kubevirt.io_datavolumes.yaml"
    pools.make_claim("claim")
    pools.make_pool(3, template=template, scaleInStrategy=PROACTIVE["offline"])
    vms = pools.wait_for_ordinals(0, 1, 2, ready=False)
    pools.change_claim("claim", {"metadata": {"ownerReferences": [owned_by_vm(vms["pool-2"])]}})
    pools.scale(2)
    pools.wait_for_ordinals(0, 1, ready=False)
    assert "ownerReferences" not in pools.claims()["claim"]["metadata"]
    assert pools.pool_condition("ReplicaFailure") is None

    pools.kubectl("apply", "-f", str(definition))
    pools.kubectl("wait", "--for=condition=Established", "crd", DATA_VOLUMES)
    owner = owned_by_vm(vms["pool-1"])
    disk = {"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "spec": {}}
    pools.kubectl.apply(disk | {"metadata": {"name": "root-1", "ownerReferences": [owner]}})
    pools.scale(1)
    pools.wait_for_ordinals(0, ready=False)
    assert "ownerReferences" not in pools.data_volumes()["root-1"]["metadata"]
    assert FINALIZER in finalizers_of(pools.vm("pool-0"))


def owned_by_vm(vm: dict[str, Any]) -> dict[str, Any]:
    metadata = vm["metadata"]
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": metadata["name"], "uid": metadata["uid"]}
