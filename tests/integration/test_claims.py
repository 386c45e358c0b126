"""P33: many callers claim VMs at the same time, while the controller crashes."""

import asyncio
from pathlib import Path

import pytest

from controller.kinds import POOLS
from plugin.commands.claims import take
from plugin.connection import connect
from plugin.flags import Flags
from plugin.subjects import Subject
from sandbox.controlplane import ControlPlane
from tests.controlplane.namespace import PoolNamespace, controller_for, new_pool_namespace
from tests.controlplane.programs import simulator
from tests.controlplane.waits import eventually, reacts

pytestmark = pytest.mark.cluster

BY = "vmherd.dev/claimed-by"
CALLERS, CLAIMS = 20, 50
POOL = Subject(POOLS, POOLS.group, "pool")


async def claim_all(pools: PoolNamespace, jobs: list[str]) -> dict[str, str]:
    """Claim a VM for each job, with `CALLERS` tasks, and return the names of the VMs."""
    taken: dict[str, str] = {}
    async with connect(Flags(kubeconfig=str(pools.plane.kubeconfig), namespace=pools.namespace)) as session:

        async def caller() -> None:
            while jobs:
                job = jobs.pop()
                while (found := await take(session, POOL, job, None)) is None:
                    await asyncio.sleep(0.2)
                taken[job] = found.metadata.name

        await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return taken


def test_p33_each_of_many_callers_has_a_vm_of_its_own_through_a_crash_of_the_controller(
    own_plane: ControlPlane, tmp_path: Path
) -> None:
    jobs = [f"job-{number}" for number in range(CLAIMS)]
    with simulator(own_plane), new_pool_namespace(own_plane) as pools:
        with controller_for(pools, tmp_path, "--no-leader-elect") as program:
            pools.make(10, annotations={"vmherd.dev/max-claimed": "100"})
            pools.wait_ready(10)
            taken = asyncio.run(claim_all(pools, jobs[:30]))
            program.kill()
        with controller_for(pools, tmp_path, "--no-leader-elect"):
            taken |= asyncio.run(claim_all(pools, jobs[30:]))
            assert asyncio.run(claim_all(pools, ["job-7"])) == {"job-7": taken["job-7"]}
            assert len({*taken.values()}) == CLAIMS, "no VM is claimed twice"
            marks = {name: vm["metadata"].get("annotations", {}).get(BY) for name, vm in pools.vms().items()}
            assert {job: name for name, job in marks.items() if job} == taken, "no claim is lost"
            reacts(lambda: len(pools.vms()) == CLAIMS + 10, what="others take the place of the claimed VMs")
            pools.scale(0)
            reacts(lambda: pools.vms().keys() == {*taken.values()}, what="only the claimed VMs stay")
            made_at = {name: vm["metadata"]["creationTimestamp"] for name, vm in pools.vms().items()}
            for name in taken.values():
                pools.vms.change(name, {"metadata": {"annotations": {"vmherd.dev/claimed-until": made_at[name]}}})
            eventually(lambda: not pools.vms(), within_s=60, what="VMs whose claims have ended are deleted")
