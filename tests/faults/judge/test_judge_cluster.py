"""The judge on a real control plane: runs without faults have no violation, and each invariant was checked."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox.binaries import Binaries
from sandbox.controlplane import ControlPlane
from tests.cluster import running_plane
from tests.controlplane.documents import vm_template
from tests.controlplane.namespace import PoolNamespace, SetNamespace, new_pool_namespace
from tests.controlplane.programs import ControllerProcess, controller_process, simulator
from tests.controlplane.waits import eventually
from tests.faults.judge.history import History
from tests.faults.judge.judge import Run, Verdict, examine
from tests.faults.judge.observer import observing

pytestmark = pytest.mark.cluster

AT_REST_S = 2.0
KEEPS_DISKS = {"proactive": {"statePreservation": "Offline"}}
OF_BOTH_KINDS = {"H0", "S1", "S2", "S4", "S7", "S11", "S12", "L1", "L2", "L3", "Q1", "Q3"}


@pytest.fixture(scope="session")
def judged_plane(control_plane_binaries: Binaries) -> Iterator[ControlPlane]:
    """A control plane whose audit log has the bodies of writes and of their answers. A simulator runs the VMs."""
    with running_plane(control_plane_binaries, audit_level="RequestResponse") as plane, simulator(plane):
        yield plane


@pytest.fixture(scope="session")
def control_plane(judged_plane: ControlPlane) -> ControlPlane:
    return judged_plane


@pytest.fixture(scope="session")
def controller(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControllerProcess]:
    with controller_process(control_plane, tmp_path_factory.mktemp("judged")) as program:
        yield program


async def judged(plane: ControlPlane, scenario: Any) -> tuple[Verdict, History]:
    """Run the scenario in a new namespace, and judge the history of the namespace.

    The history ends a few seconds after the scenario.
    """
    async with observing(plane.kubeconfig, plane.audit_log) as observer:
        with new_pool_namespace(plane) as pools:
            await asyncio.to_thread(scenario, pools)
            settled_from = time.time()
            await asyncio.sleep(AT_REST_S)
            history = await observer.history(pools.namespace)
            return examine(history, Run(settled_from=settled_from)), history


def assert_clean(verdict: Verdict, *checked: str) -> None:
    assert not verdict.violations, str(verdict)
    assert {number for number, count in verdict.checks.items() if count} >= set(checked), str(verdict)


async def test_a_set_that_grows_adopts_releases_and_shrinks_has_no_violation(
    control_plane: ControlPlane, controller: ControllerProcess
) -> None:
    def scenario(namespace: PoolNamespace) -> None:
        sets = SetNamespace(control_plane, namespace.namespace)
        sets.make_vmi("orphan")
        sets.make(3)
        members = sets.wait_for(3)
        sets.vmis.change(next(iter(members.keys() - {"orphan"})), {"metadata": {"labels": {"app": "other"}}})
        eventually(lambda: len(sets.vmis()) == 4 and sets.status().get("readyReplicas") == 3, what="the replacement")
        sets.change({"spec": {"replicas": 1}})
        eventually(lambda: sets.status().get("replicas") == 1 and len(sets.vmis()) == 2, what="the VMIs are gone")
        controller.settle(sets.namespace, sets.admin, events=True)

    verdict, _ = await judged(control_plane, scenario)
    assert_clean(verdict, *OF_BOTH_KINDS, "S5", "L4")


async def test_a_pool_that_grows_changes_its_template_and_shrinks_has_no_violation(
    control_plane: ControlPlane, controller: ControllerProcess
) -> None:
    def scenario(pools: PoolNamespace) -> None:
        pools.make(3, template=vm_template(disks=("root",)), maxUnavailable=1, scaleInStrategy=KEEPS_DISKS)
        pools.wait_ready(3, within_s=60)
        memory = {"domain": {"resources": {"requests": {"memory": "128M"}}}}
        pools.change({"spec": {"virtualMachineTemplate": {"spec": {"template": {"spec": memory}}}}})
        pools.wait_ready(3, within_s=60)
        pools.scale(1)
        pools.wait_ready(1, within_s=60)
        eventually(lambda: len(pools.vms()) == 1, what="the VMs are gone")
        controller.settle(pools.namespace, pools.admin, events=True)

    verdict, history = await judged(control_plane, scenario)
    assert_clean(verdict, *OF_BOTH_KINDS, "S3", "S6", "S9", "S10")
    disks = [change for change in history.changes if change.kind == "DataVolume" and change.before is None]
    assert len(disks) == 3


async def test_the_observer_continues_after_a_restart_of_the_api_server(control_plane: ControlPlane) -> None:
    def scenario(namespace: PoolNamespace) -> None:
        sets = SetNamespace(control_plane, namespace.namespace)
        for number in range(3):
            sets.make_vmi(f"before-{number}")
        control_plane.restart_apiserver()
        sets.make_vmi("after")
        sets.vmis.delete("before-0")

    verdict, history = await judged(control_plane, scenario)
    assert not [each for each in verdict.violations if each.invariant == "H0"], str(verdict)
    assert {change.name for change in history.changes} == {"before-0", "before-1", "before-2", "after"}
