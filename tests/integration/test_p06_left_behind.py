"""P6: VMs whose pool is gone, since somebody took its finalizer off by force, can be deleted all the same."""

from __future__ import annotations

import pytest

from tests.integration.herd import eventually, stays
from tests.integration.ranch import FINALIZER, Ranch, vm_template

pytestmark = pytest.mark.cluster


def test_p6_vms_whose_pool_was_forced_away_are_collected_and_their_disks_stay(ranch: Ranch) -> None:
    ranch.make_pool(2, template=vm_template(disks=("root",)))
    ranch.wait_for_ordinals(0, 1)
    ranch.change_pool({"spec": {"paused": True}})
    ranch.change_pool({"metadata": {"finalizers": None}})
    ranch.kubectl("delete", "vmpool", "pool", "--timeout=30s")
    eventually(lambda: not ranch.vms(), what="the garbage collector takes the VMs")
    kept = ranch.data_volumes()
    assert kept.keys() == {"root-0", "root-1"}
    assert not any(disk["metadata"].get("ownerReferences") for disk in kept.values())


def test_p6_our_finalizer_alone_touches_no_vm_that_lives(ranch: Ranch) -> None:
    ranch.make_vm("ghost-7", finalizers=(FINALIZER,))
    stays(lambda: FINALIZER in ranch.vm("ghost-7")["metadata"]["finalizers"], for_s=0.7)
    ranch.kubectl("delete", "vm", "ghost-7", "--timeout=30s")
    assert not ranch.vms()
