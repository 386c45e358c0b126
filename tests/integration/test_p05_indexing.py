"""P5: the parts of a template that get the VM's ordinal, and the parts that stay as written."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.controller_process import eventually
from tests.integration.pool_namespace import PoolNamespace, uids, vm_template

pytestmark = pytest.mark.cluster

CONFIG_MAPS: dict[str, dict[str, Any]] = {
    "config": {"configMap": {"name": "config", "optional": True}},
}
SYSPREP: dict[str, dict[str, Any]] = {
    "sysprep-config": {"sysprep": {"configMap": {"name": "answers"}}},
    "sysprep-secret": {"sysprep": {"secret": {"name": "answers"}}},
}
SECRETS: dict[str, dict[str, Any]] = {
    "secret": {"secret": {"secretName": "secret", "volumeLabel": "secret"}},
    "no-cloud": {"cloudInitNoCloud": {"secretRef": {"name": "user"}, "networkDataSecretRef": {"name": "net"}}},
    "drive": {"cloudInitConfigDrive": {"secretRef": {"name": "user"}, "networkDataSecretRef": {"name": "net"}}},
}
DISKS: dict[str, dict[str, Any]] = {
    "root": {"dataVolume": {"name": "root"}},
    "root-claim": {"persistentVolumeClaim": {"claimName": "root", "readOnly": True}},
}
AS_WRITTEN: dict[str, dict[str, Any]] = {
    "shared": {"dataVolume": {"name": "shared"}},
    "shared-claim": {"persistentVolumeClaim": {"claimName": "root-of-all"}},
    "image": {"containerDisk": {"image": "root", "imagePullSecret": "secret"}},
    "account": {"serviceAccount": {"serviceAccountName": "secret"}},
    "ephemeral": {"ephemeral": {"persistentVolumeClaim": {"claimName": "base"}}},
    "keys": {"cloudInitNoCloud": {"userData": "#cloud-config"}},
}
EVERYTHING = {**CONFIG_MAPS, **SECRETS, **SYSPREP, **DISKS, **AS_WRITTEN}
NAMES = ("name", "secretName", "claimName")


def indexed(source: dict[str, Any], ordinal: int) -> dict[str, Any]:
    """The source of a volume, with the ordinal at the end of every referenced name."""
    return {
        field: f"{value}-{ordinal}" if field in NAMES else indexed(value, ordinal) if isinstance(value, dict) else value
        for field, value in source.items()
    }


def halted_template() -> dict[str, Any]:
    """The template of a stopped VM with a volume of every kind and a dataVolumeTemplate."""
    volumes = tuple({"name": name, **source} for name, source in EVERYTHING.items() if name != "root")
    return vm_template(disks=("root",), volumes=volumes, runStrategy="Halted")


def volumes_of(vm: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The sources of a VM's volumes, by the volumes' names."""
    volumes = vm["spec"]["template"]["spec"]["volumes"]
    return {volume["name"]: {field: volume[field] for field in volume if field != "name"} for volume in volumes}


def test_p5_each_vm_runs_on_its_own_disks(pools: PoolNamespace) -> None:
    claim = {"name": "claim", "persistentVolumeClaim": {"claimName": "data"}}
    pools.make_pool(3, template=vm_template(disks=("root", "data"), volumes=(claim,)))
    vms = uids(pools.wait_for_ordinals(0, 1, 2))
    disks = pools.data_volumes()
    assert disks.keys() == {f"{disk}-{ordinal}" for disk in ("root", "data") for ordinal in range(3)}
    for name, disk in disks.items():
        (owner,) = disk["metadata"]["ownerReferences"]
        assert owner["uid"] == vms[f"pool-{name.rpartition('-')[2]}"]


def test_p5_references_of_sysprep_get_the_ordinal_only_if_an_annotation_asks_for_it(pools: PoolNamespace) -> None:
    both = {"appendIndexToConfigMapRefs": True, "appendIndexToSecretRefs": True}
    pools.make_pool(1, template=halted_template(), nameGeneration=both)
    pools.wait_for_ordinals(0, ready=False)
    pools.wait_until_updated(1)
    assert {name: volumes_of(pools.vm("pool-0"))[name] for name in SYSPREP} == SYSPREP
    pools.change_pool({"metadata": {"annotations": {"vmherd.dev/index-sysprep": "true"}}})
    wanted = {name: indexed(source, 0) for name, source in SYSPREP.items()}
    eventually(lambda: {name: volumes_of(pools.vm("pool-0"))[name] for name in SYSPREP} == wanted, what="the ordinals")
    pools.wait_until_updated(1)
    pools.scale(2)
    vm = pools.wait_for_ordinals(0, 1, ready=False)["pool-1"]
    assert {name: volumes_of(vm)[name] for name in SYSPREP} == {n: indexed(s, 1) for n, s in SYSPREP.items()}
    pools.change_pool({"metadata": {"annotations": {"vmherd.dev/index-sysprep": None}}})
    eventually(lambda: {name: volumes_of(pools.vm("pool-0"))[name] for name in SYSPREP} == SYSPREP, what="as written")


def test_p5_a_change_of_the_settings_reaches_the_existing_vms(pools: PoolNamespace) -> None:
    pools.make_pool(2, template=halted_template())
    pools.wait_for_ordinals(0, 1, ready=False)
    pools.change_pool({"spec": {"nameGeneration": {"appendIndexToSecretRefs": True}}})
    pools.wait_until_updated(2)
    vms = pools.vms()
    for ordinal in (0, 1):
        volumes = volumes_of(vms[f"pool-{ordinal}"])
        assert volumes["secret"] == indexed(SECRETS["secret"], ordinal)
        assert volumes["config"] == CONFIG_MAPS["config"]
