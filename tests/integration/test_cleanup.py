"""`vmherd cleanup` after the controller has stopped. Users can then delete pools and VMs."""

from pathlib import Path

import pytest

from tests.controlplane.namespace import SetNamespace
from tests.controlplane.programs import controller_process
from tests.controlplane.waits import eventually
from tests.integration.idle_plane import SHORT_LEASE
from tests.integration.kubevirt_installation import vmherd

pytestmark = pytest.mark.cluster


def test_a_pool_of_a_removed_controller_can_be_deleted_after_a_cleanup(
    idle_namespace: SetNamespace, tmp_path: Path
) -> None:
    pools, kubeconfig = idle_namespace.pools, idle_namespace.plane.kubeconfig
    with controller_process(idle_namespace.plane, tmp_path, *SHORT_LEASE) as program:
        pools.make(2)
        eventually(lambda: len(pools.vms()) == 2, what="the pool has its VMs")
        refused = vmherd(kubeconfig, "cleanup")
        assert refused.returncode == 1
        assert "holds the lease vmherd-system/vmherd: uninstall it first" in refused.stderr
        assert refused.stderr.count("\n") == 1
        assert "would: " in vmherd(kubeconfig, "cleanup", "--dry-run").stdout
        program.kill()
    idle_namespace.kubectl("delete", "vmpool", "pool", "--wait=false")
    assert pools.exists()
    done = vmherd(kubeconfig, "cleanup")
    assert (done.returncode, done.stderr) == (0, "")
    eventually(lambda: not pools.exists() and not pools.vms(), what="the pool and its VMs go")
