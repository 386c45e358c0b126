"""A set whose plan keeps the event loop of the controller busy."""

from pathlib import Path

import pytest

from tests.controlplane.busy_controller import BUSY
from tests.controlplane.namespace import SetNamespace
from tests.controlplane.programs import controller_process

pytestmark = pytest.mark.cluster

LEASE = ("--lease-duration", "3s", "--renew-deadline", "2s", "--retry-period", "400ms")
PROGRAM = "tests.controlplane.busy_controller"


def test_a_leader_whose_loop_is_busy_for_longer_than_its_lease_stays_leader(
    idle_namespace: SetNamespace, tmp_path: Path
) -> None:
    flags = ("--leader-election-namespace", "default", *LEASE)
    with controller_process(idle_namespace.plane.kubeconfig, tmp_path, *flags, program=PROGRAM) as program:
        idle_namespace.make(2, annotations={BUSY: "3.5"})
        idle_namespace.wait_for(2, within_s=30)
        assert program.working
        assert len(program.lines(msg="became leader")) == 1
        assert program.stop() == 0
