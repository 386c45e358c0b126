"""What `rollout undo`, `plan` and `why` say before the disks of a pool are deleted or expanded."""

import os
import pty
import sys

import pytest

from tests.plugin.cluster import POOL, Cluster, Shell
from tests.plugin.scenes import pool_with_other_disks_before

WEB = "virtualmachinepool.pool.kubevirt.io/web"
DISKS = "data-0, data-1, data-2"
LOST = f'the rollback of vmpool "web" deletes 3 VMs with the disks {DISKS}; the VMs are created again with new disks'


def storage(cluster: Cluster) -> dict[str, object]:
    spec = cluster.document(POOL, "web")["spec"]["virtualMachineTemplate"]["spec"]
    found: dict[str, object] = spec["dataVolumeTemplates"][0]["spec"]["storage"]
    return found


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1)])
def test_on_a_terminal_an_undo_that_deletes_disks_asks(
    cluster: Cluster, shell: Shell, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
):
    pool_with_other_disks_before(cluster, storage_class="slow")
    keyboard, terminal = pty.openpty()
    with os.fdopen(terminal) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        os.write(keyboard, answer.encode())
        found, out, err = shell("rollout undo vmpool/web")
    os.close(keyboard)
    assert found == code
    assert err.startswith(f"Warning: {LOST}\nContinue? [y/N] ")
    assert (storage(cluster)["storageClassName"] == "slow") is (code == 0)
    assert out == (f"{WEB} rolled back\n" if code == 0 else "")
