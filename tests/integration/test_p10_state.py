"""P10: disks that outlive their VMs, and disks that go with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.controlplane import ControlPlane
from tests.cluster import Kubectl
from tests.integration.herd import eventually, herd, owner_uid, stays
from tests.integration.ranch import FINALIZER, Ranch, finalizers_of, uids, vm_template

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
    ranch: Ranch, strategies: dict[str, dict[str, Any]], *, replicas: int, run_strategy: str = "Always"
) -> None:
    """A pool of each strategy, each VM of which has a disk `<pool>-root-<ordinal>`. Return when all are there."""
    for name, strategy in strategies.items():
        template = vm_template(disks=(f"{name}-root",), runStrategy=run_strategy)
        ranch.make_pool(replicas, name=name, template=template, scaleInStrategy=strategy)
    wait_for(ranch, strategies, replicas, ready=run_strategy == "Always")
    everything = len(strategies) * replicas
    eventually(lambda: [len(each) for each in storage(ranch)] == [everything, everything], what="all disks are there")


def wait_for(ranch: Ranch, names: dict[str, Any], replicas: int, *, ready: bool = True) -> dict[str, dict[str, Any]]:
    return ranch.wait_for_vms(*(f"{name}-{ordinal}" for name in names for ordinal in range(replicas)), ready=ready)


def storage(ranch: Ranch) -> tuple[dict[str, str], dict[str, str]]:
    """The UIDs of the DataVolumes and of the PVCs, by their names."""
    return uids(ranch.data_volumes()), uids(ranch.claims())


def kept_of(names: dict[str, str], ordinal: int) -> dict[str, str]:
    """Of these, whatever must survive when all VMs of this ordinal go."""
    return {
        name: uid for name, uid in names.items() if not name.endswith(f"-{ordinal}") or name.partition("-")[0] in KEPT
    }


def test_p10_disks_outlive_a_vm_that_is_scaled_in_and_the_next_of_its_ordinal_finds_them(ranch: Ranch) -> None:
    make_pools(ranch, PROACTIVE, replicas=2)
    volumes, claims = storage(ranch)
    before = uids(ranch.vms())
    for name in PROACTIVE:
        ranch.scale(1, name=name)
    wait_for(ranch, PROACTIVE, 1)
    kept = kept_of(volumes, 1), kept_of(claims, 1)
    eventually(lambda: storage(ranch) == kept, what="what is not preserved goes with the VM")
    stays(lambda: storage(ranch) == kept, for_s=1.0, what="what is preserved")
    assert {name: owner_uid(volume) for name, volume in ranch.data_volumes().items()} == {
        "offline-root-0": before["offline-0"],
        "offline-root-1": "",
        "online-root-0": before["online-0"],
        "online-root-1": "",
        "disabled-root-0": before["disabled-0"],
        "unstated-root-0": before["unstated-0"],
    }
    assert owner_uid(ranch.claims()["offline-root-1"]) == volumes["offline-root-1"], "it stays its DataVolume's"
    for name in PROACTIVE:
        ranch.scale(2, name=name)
    after = uids(wait_for(ranch, PROACTIVE, 2))
    again = storage(ranch)
    assert {name for name in volumes if again[0][name] == volumes[name]} == set(kept[0])
    assert {name for name in claims if again[1][name] == claims[name]} == set(kept[1])
    for name in PROACTIVE:
        assert owner_uid(ranch.data_volumes()[f"{name}-root-1"]) == after[f"{name}-1"] != before[f"{name}-1"]


def delete_vms(ranch: Ranch, *names: str) -> None:
    """As users do, and return when all of them have gone, replaced or not."""
    before = {uid for name, uid in uids(ranch.vms()).items() if name in names}
    ranch.kubectl("delete", "vm", *names, "--wait=false")
    eventually(lambda: not before & set(uids(ranch.vms()).values()), what=f"{names} are let go")


def test_p10_a_vm_that_its_user_deletes_comes_back_to_its_disks_where_they_are_preserved(ranch: Ranch) -> None:
    # A VM that runs may do so on the old disks for a while, before the garbage collector comes to them.
    make_pools(ranch, LET_GO, replicas=2, run_strategy="Halted")
    volumes, claims = storage(ranch)
    delete_vms(ranch, *(f"{name}-0" for name in LET_GO))
    vms = uids(wait_for(ranch, LET_GO, 2, ready=False))
    wanted = {f"{pool}-root-{ordinal}": vms[f"{pool}-{ordinal}"] for pool in LET_GO for ordinal in (0, 1)}

    def there() -> bool:
        return {name: owner_uid(volume) for name, volume in ranch.data_volumes().items()} == wanted

    eventually(there, what="each has its disk, old or new")
    eventually(lambda: storage(ranch)[1].items() & claims.items() == kept_of(claims, 0).items())
    assert storage(ranch)[0].items() & volumes.items() == kept_of(volumes, 0).items()


def test_p10_disks_outlive_a_vm_that_its_user_deletes_from_a_pool_that_is_too_large(ranch: Ranch) -> None:
    make_pools(ranch, LET_GO, replicas=3)
    volumes, claims = storage(ranch)
    for name in LET_GO:
        ranch.scale(1, name=name)
    eventually(lambda: {status.get("observedGeneration") for status in ranch.pool_statuses().values()} == {2})
    delete_vms(ranch, *(f"{name}-1" for name in LET_GO))
    kept = kept_of(volumes, 1), kept_of(claims, 1)
    eventually(lambda: storage(ranch) == kept)
    stays(lambda: storage(ranch) == kept and len(ranch.vms()) == 2 * len(LET_GO), for_s=0.7)


def test_p10_the_state_is_safe_before_the_finalizer_goes(ranch: Ranch) -> None:
    claim = {"name": "claim", "persistentVolumeClaim": {"claimName": "root"}}
    template = vm_template(disks=("root",), volumes=(claim,))
    ranch.make_pool(2, template=template, scaleInStrategy=PROACTIVE["offline"])
    ranch.wait_for_ordinals(0, 1)
    position = ranch.plane.audit_position()
    ranch.scale(1)
    ranch.wait_for_ordinals(0)
    # One that met with somebody else's write was refused, and tried again.
    done = [each for each in ranch.requests("delete", "patch", since=position) if each.code == 200]
    order = [(each.verb, each.resource) for each in done if each.resource != "virtualmachinepools"]
    assert order == [("delete", "virtualmachines"), ("patch", "datavolumes"), ("patch", "virtualmachines")]


def test_p10_only_this_vms_reference_is_taken_off_and_only_disks_of_its_own(ranch: Ranch) -> None:
    """PVCs that a VM names, and that belong to it beside somebody else."""
    volumes = tuple({"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("own", "shared"))
    for name in ("own", "shared", "unnamed"):
        ranch.make_claim(name)
    ranch.make_pool(2, template=vm_template(volumes=volumes), scaleInStrategy=PROACTIVE["offline"])
    vms = ranch.wait_for_ordinals(0, 1)
    ranch.kubectl("create", "configmap", "boss")
    boss = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "boss",
        "uid": ranch.kubectl.json("get", "configmap", "boss")["metadata"]["uid"],
    }
    first, second = (owned_by_vm(vms[name]) for name in ("pool-0", "pool-1"))
    ranch.change_claim("own", {"metadata": {"ownerReferences": [second]}})
    ranch.change_claim("shared", {"metadata": {"ownerReferences": [first, second, boss]}})
    ranch.change_claim("unnamed", {"metadata": {"ownerReferences": [second, boss]}})
    ranch.scale(1)
    ranch.wait_for_ordinals(0)
    eventually(lambda: len(ranch.claims()["unnamed"]["metadata"]["ownerReferences"]) == 1, what="the collector's part")
    stays(lambda: ranch.claims().keys() == {"own", "shared", "unnamed"}, for_s=0.7)
    assert "ownerReferences" not in ranch.claims()["own"]["metadata"]
    assert ranch.claims()["shared"]["metadata"]["ownerReferences"] == [first, boss]


def test_p10_what_is_to_be_kept_outlives_the_pool(ranch: Ranch) -> None:
    make_pools(ranch, PROACTIVE, replicas=2)
    volumes, claims = storage(ranch)
    ranch.kubectl("delete", "vmpool", *PROACTIVE, "--timeout=30s")
    eventually(lambda: not ranch.vms(), what="the VMs go")
    kept = tuple(
        {name: uid for name, uid in each.items() if name.partition("-")[0] in KEPT} for each in (volumes, claims)
    )
    eventually(lambda: storage(ranch) == kept)
    stays(lambda: storage(ranch) == kept, for_s=0.7)


@pytest.fixture
def without_cdi(own_plane: ControlPlane, tmp_path: Path) -> Iterator[Ranch]:
    """A cluster without DataVolumes, on which the controller works alone."""
    kubectl = Kubectl(own_plane.kubeconfig)
    kubectl("delete", "crd", DATA_VOLUMES)
    ranch = Ranch(own_plane, "bare")
    kubectl("create", "namespace", ranch.namespace)
    with herd(own_plane, tmp_path) as program:
        yield ranch
        assert program.working


def test_p10_without_cdi_claims_are_kept_and_data_volumes_as_soon_as_there_are_any(without_cdi: Ranch) -> None:
    ranch = without_cdi
    volume = {"name": "claim", "persistentVolumeClaim": {"claimName": "claim"}}
    template = vm_template(disks=("root",), volumes=(volume,))
    definition = Path(__file__).parents[2] / "sandbox/crds/cdi.kubevirt.io_datavolumes.yaml"
    ranch.make_claim("claim")
    ranch.make_pool(3, template=template, scaleInStrategy=PROACTIVE["offline"])
    vms = ranch.wait_for_ordinals(0, 1, 2, ready=False)
    ranch.change_claim("claim", {"metadata": {"ownerReferences": [owned_by_vm(vms["pool-2"])]}})
    ranch.scale(2)
    ranch.wait_for_ordinals(0, 1, ready=False)
    assert "ownerReferences" not in ranch.claims()["claim"]["metadata"]
    assert ranch.pool_condition("ReplicaFailure") is None

    ranch.kubectl("apply", "-f", str(definition))
    ranch.kubectl("wait", "--for=condition=Established", "crd", DATA_VOLUMES)
    owner = owned_by_vm(vms["pool-1"])
    disk = {"apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "spec": {}}
    ranch.kubectl.apply(disk | {"metadata": {"name": "root-1", "ownerReferences": [owner]}})
    ranch.scale(1)
    ranch.wait_for_ordinals(0, ready=False)
    assert "ownerReferences" not in ranch.data_volumes()["root-1"]["metadata"]
    assert FINALIZER in finalizers_of(ranch.vm("pool-0"))


def owned_by_vm(vm: dict[str, Any]) -> dict[str, Any]:
    metadata = vm["metadata"]
    return {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": metadata["name"], "uid": metadata["uid"]}
