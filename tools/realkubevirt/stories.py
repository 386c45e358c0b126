"""Plays what needs two nodes on real KubeVirt, and prints a table: `python -m tools.realkubevirt.stories FOLDER`.

It runs as the command of `python -m tools.realkubevirt --nodes 2 SOURCE`. The recordings get into the folder.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from msgspec import Struct

from sandbox.admin import Rejected
from tests.cluster import Kubectl
from tests.controlplane.waits import eventually
from tools.realkubevirt import disk_stories, source_stories
from tools.realkubevirt.record import DISK_KINDS, KINDS, Recorder, recording
from tools.realkubevirt.stage import (
    FIRST,
    LONG_S,
    OBJECTS,
    SECOND,
    Fields,
    Stage,
    condition,
    is_moving,
    node_of,
    program,
)

LOOPS_STOPPED: Final = "--pool-controller-threads=0"
OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"


# Stories without vmherd. Each is one recording.


def moved(stage: Stage, record: Recorder) -> str:
    """A user migrates a VM."""
    before = stage.guest("vm")
    record.act("VirtualMachineInstanceMigration created", lambda: stage.kubectl.create(OBJECTS["migration"]))
    _wait_moved(stage, FIRST)
    eventually(
        lambda: stage.get("virtualmachineinstancemigration", "move")["status"]["phase"] == "Succeeded",
        within_s=LONG_S,
        what="the migration has ended",
    )
    time.sleep(10)  # the source Pod ends
    return f"the guest ran on: it was up for {before['up']} s before, and for {stage.guest('vm')['up']} s after"


def more_sockets(stage: Stage, record: Recorder) -> str:
    """A second CPU reaches a running VM."""
    patch = {"spec": {"template": {"spec": {"domain": {"cpu": {"sockets": 2}}}}}}
    return _grow(stage, record, patch, "HotVCPUChange")


def more_memory(stage: Stage, record: Recorder) -> str:
    """A second gibibyte of memory reaches a running VM."""
    patch = {"spec": {"template": {"spec": {"domain": {"memory": {"guest": "2Gi"}}}}}}
    return _grow(stage, record, patch, "HotMemoryChange")


def _grow(stage: Stage, record: Recorder, patch: Fields, mark: str) -> str:
    before = stage.guest("vm")
    record.act("VirtualMachine changed", lambda: stage.change("vm", "vm", patch))
    eventually(lambda: condition(stage.vmis()["vm"], mark), within_s=LONG_S, what=f"{mark} is set")
    eventually(lambda: not condition(stage.vmis()["vm"], mark), within_s=LONG_S, what=f"{mark} has ended")
    time.sleep(10)
    return f"on {node_of(stage.vmis()['vm'])}, {before} became {stage.guest('vm')}"


def _wait_moved(stage: Stage, node: str) -> None:
    def there() -> bool:
        vmi = stage.vmis()["vm"]
        return node_of(vmi) == node and not is_moving(vmi)

    eventually(there, within_s=LONG_S, what=f"the VM runs on {node}")


def drained(stage: Stage, record: Recorder) -> str:
    """The node of a running VM that can migrate is drained"""
    before = stage.guest("vm")
    with stage.drain() as drain:
        record.act("drain", lambda: None)
        _wait_moved(stage, FIRST)
        drain.wait()
    time.sleep(10)
    return f"exit {drain.returncode}; up for {before['up']} s before, and for {stage.guest('vm')['up']} s after"


def back(stage: Stage, record: Recorder) -> str:
    """The node of a running VM hangs for two minutes, and comes back"""
    before = stage.guest("vm")
    with stage.frozen() as thaw:
        _lose(stage, record)
        time.sleep(120)
        record.act("node back", thaw)
        began = time.monotonic()
        stage.wait_ready(1)
    took = time.monotonic() - began
    return f"ready {took:.0f} s after the return; up for {before['up']} s before, and {stage.guest('vm')['up']} s after"


def fenced(stage: Stage, record: Recorder) -> str:
    """The node of a running VM hangs, and gets the taint out-of-service"""
    uid = stage.vmis()["vm"]["metadata"]["uid"]
    with stage.frozen():
        _lose(stage, record)
        began = time.monotonic()
        record.act("out of service", lambda: stage.kubectl("taint", "node", SECOND, OUT_OF_SERVICE))
        try:
            eventually(lambda: _replaced(stage, uid), within_s=900, what="the VM runs elsewhere")
            took = time.monotonic() - began
        finally:
            stage.kubectl("taint", "node", SECOND, f"{OUT_OF_SERVICE}-", check=False)
    time.sleep(10)
    return f"ready on {node_of(stage.vmis()['vm'])} after {took:.0f} s"


def _lose(stage: Stage, record: Recorder) -> None:
    record.act("node frozen", lambda: None)
    eventually(lambda: condition(stage.vmis()["vm"], "Ready") == "False", within_s=LONG_S, what="the VM is lost")


def _replaced(stage: Stage, uid: str) -> bool:
    vmi = stage.vmis().get("vm")
    return vmi is not None and vmi["metadata"]["uid"] != uid and condition(vmi, "Ready") == "True"


# Stories of pools under vmherd.


def resize(stage: Stage, domain: Fields) -> str:
    """A pool of two gets a new size. Return what became of its VMIs."""
    before = stage.vmis()
    spec = {"template": {"spec": {"domain": domain}}}
    stage.change("vmpool", "web", {"spec": {"virtualMachineTemplate": {"spec": spec}}})
    moving: set[int] = set()

    def ended() -> bool:
        vmis = stage.vmis()
        moving.add(sum(map(is_moving, vmis.values())))
        new = [name for name, vmi in vmis.items() if name in before and revision_of(vmi) != revision_of(before[name])]
        return len(new) == stage.ready() == len(before)

    eventually(ended, within_s=2 * LONG_S, what="the pool is updated")
    time.sleep(10)
    left = len(stage.kubectl.json("get", "virtualmachineinstancemigrations")["items"])
    guests = [stage.guest(name) for name in sorted(before)]
    return f"{fate(stage, before)}; at most {max(moving)} in migration, {left} migrations are left; guests: {guests}"


def drain_pool(stage: Stage) -> str:
    """The VMs of a pool with a budget leave a node."""
    eventually(lambda: stage.get("pdb", "virtualmachinepool-web"), what="the budget of the pool")
    before = stage.vmis()
    ready: list[int] = []
    with stage.drain() as drain:
        while drain.poll() is None:
            ready.append(stage.ready())
            time.sleep(0.5)
        stage.wait_ready(2)
    return f"exit {drain.returncode}; {fate(stage, before)}; never fewer than {min(ready)} ready"


def lose(stage: Stage) -> str:
    """The node of one of two VMs hangs, and comes back."""
    with stage.only(FIRST):
        stage.change("vmpool", "web", {"spec": {"replicas": 2}})
        stage.wait_ready(2)
    before = stage.vmis()
    with stage.frozen() as thaw:
        began = time.monotonic()
        eventually(lambda: len(stage.vmis()) == 3, within_s=LONG_S, what="a substitute")
        made = time.monotonic() - began
        eventually(lambda: stage.ready() == 2, within_s=LONG_S, what="the substitute is ready")
        ready = time.monotonic() - began
        print(stage.plugin("why", "vmpool/web"), flush=True)
        thaw()
    began = time.monotonic()
    eventually(lambda: len(stage.vmis()) == stage.ready() == 2, within_s=LONG_S, what="the substitute leaves")
    left = time.monotonic() - began
    times = f"a substitute after {made:.0f} s, ready after {ready:.0f} s, gone {left:.0f} s after the return"
    return f"{times}; {fate(stage, before)}"


def fate(stage: Stage, before: dict[str, Fields]) -> str:
    after = stage.vmis()
    stayed = sum(
        name in after and after[name]["metadata"]["uid"] == vmi["metadata"]["uid"] for name, vmi in before.items()
    )
    places = ", ".join(f"{name} on {node_of(vmi)}" for name, vmi in sorted(after.items()))
    return f"{stayed} of {len(before)} VMIs stayed; {places}"


def revision_of(vmi: Fields) -> str:
    return str(vmi["metadata"]["labels"]["kubevirt.io/vm-pool-revision-name"])


@contextmanager
def vmherd(kubectl: Kubectl, log: Path) -> Iterator[None]:
    """KubeVirt's loops give way to vmherd, which runs during the block."""
    subprocess.run(program(kubectl, "vmherd", "takeover"), check=True)
    controller = ("deployment", "virt-controller", "--namespace=kubevirt")
    eventually(lambda: LOOPS_STOPPED in str(kubectl.json("get", *controller)), within_s=LONG_S, what="the takeover")
    rollout = ("rollout", "status", *controller, "--timeout=90s")
    eventually(lambda: not kubectl(*rollout, check=False).returncode, within_s=LONG_S, what="virt-controller restarts")
    flags = ("--mode=takeover", "--no-leader-elect", "--migrations", "--disruption-budgets")
    command = program(kubectl, "vmherd", "run", *flags)
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            eventually(lambda: '"working"' in log.read_text(), within_s=LONG_S, what="vmherd works")
            yield
        finally:
            process.terminate()


class Solo(Struct, frozen=True):
    play: Callable[[Stage, Recorder], str]
    domain: Fields = {}
    methods: tuple[str, ...] = ()
    with_disks: bool = False
    """The story needs CDI, and makes its VM itself."""


class Pooled(Struct, frozen=True):
    play: Callable[[Stage], str]
    annotations: dict[str, str] = {}
    methods: tuple[str, ...] = ()
    replicas: int = 2
    template: Fields = {}


TWO_SOCKETS: Final[Fields] = {"cpu": {"sockets": 2}}
GIB: Final[Fields] = {"memory": {"guest": "1Gi"}}
MORE: Final[Fields] = {"memory": {"guest": "2Gi"}}
MIGRATE: Final = {"vmherd.dev/migrate": "true"}
BUDGET: Final = {"vmherd.dev/disruption-budget": "1"}
BIG: Final[Fields] = {"domain": {**OBJECTS["vm"]["spec"]["template"]["spec"]["domain"], **GIB}}
SOLOS: Final = {
    "vm-moved": Solo(moved),
    "vm-more-sockets": Solo(more_sockets, methods=("LiveMigrate",)),
    "vm-more-memory": Solo(more_memory, domain=GIB, methods=("LiveMigrate",)),
    "vm-drained": Solo(drained),
    "vm-node-back": Solo(back),
    "vm-node-fenced": Solo(fenced),
    "vm-disk": Solo(disk_stories.made_and_deleted, with_disks=True),
}
POOLS: Final = {
    "sockets, KubeVirt migrates": Pooled(partial(resize, domain=TWO_SOCKETS), methods=("LiveMigrate",)),
    "sockets, nothing migrates": Pooled(partial(resize, domain=TWO_SOCKETS)),
    "sockets, the pool migrates": Pooled(partial(resize, domain=TWO_SOCKETS), MIGRATE),
    "memory, the pool migrates": Pooled(partial(resize, domain=MORE), MIGRATE, template=BIG),
    "drain, VMs migrate": Pooled(drain_pool, BUDGET, template={"evictionStrategy": "LiveMigrate"}),
    "drain, VMs restart": Pooled(drain_pool, BUDGET, template={"evictionStrategy": "None"}),
    "lost node": Pooled(lose, {"vmherd.dev/substitute-lost-after-seconds": "20"}, replicas=1),
}


WITH_DISKS: Final[dict[str, Callable[[Stage], str]]] = {
    "disk, all data kept": partial(disk_stories.lives, keeps="Offline"),
    "disk, not kept": partial(disk_stories.lives, keeps="Disabled"),
    "disk of a healed VM": disk_stories.healed,
    "disk grows": partial(disk_stories.grows, storage_class="local"),
    "disk cannot grow": partial(disk_stories.grows, storage_class="local-fixed"),
    "disk imported": disk_stories.imported,
    "disk cloned": source_stories.cloned,
    "disk from a snapshot": source_stories.from_snapshot,
    "disk of a DataImportCron": source_stories.from_cron,
    "disk of another source": source_stories.other_source,
    "disk of a detached VM": source_stories.detached,
    "disk restored": source_stories.restored,
    "standby": partial(disk_stories.standby, mode="stopped"),
    "standby, paused": partial(disk_stories.standby, mode="paused"),
    "claim": disk_stories.claimed,
}
EVERY: Final = (*SOLOS, *POOLS, *WITH_DISKS)


def play(stage: Stage, name: str) -> str:
    if name in WITH_DISKS:
        return WITH_DISKS[name](stage)
    story = SOLOS.get(name) or POOLS[name]
    stage.configure(list(story.methods))
    if isinstance(story, Pooled):
        stage.make_pool(story.annotations, replicas=story.replicas, **story.template)
        return story.play(stage)
    if not story.with_disks:
        stage.make_vm(story.domain)
    about = (story.play.__doc__ or "").strip()
    kinds = (*KINDS, *DISK_KINDS) if story.with_disks else KINDS
    with recording(stage.kubectl, about, kinds) as record:
        told = story.play(stage, record)
    record.write(stage.folder / f"real-{name}.json")
    return told


def needs_disks(name: str) -> bool:
    return name in WITH_DISKS or (name in SOLOS and SOLOS[name].with_disks)


@contextmanager
def opened(kubectl: Kubectl, name: str, folder: Path) -> Iterator[Stage]:
    """A namespace for a story. At the end, its VMs are deleted."""
    namespace = f"{re.sub('[^a-z]+', '-', name)}-{uuid.uuid4().hex[:6]}"
    kubectl("create", "namespace", namespace)
    stage = Stage(Kubectl(kubectl.kubeconfig, namespace), folder)
    try:
        yield stage
    finally:
        stage.kubectl("delete", "vmpool,vm", "--all", "--wait=false", check=False)
        eventually(lambda: not stage.vmis(), within_s=LONG_S, what="the VMs of the story have ended")


def tell(kubectl: Kubectl, name: str, folder: Path) -> None:
    """Play a story and print its row of the table."""
    began = time.monotonic()
    with opened(kubectl, name, folder) as stage:
        try:
            told = play(stage, name)
        except (pytest.fail.Exception, Rejected) as error:
            told = f"FAILED: {error}"
    print(f"| {name} | {time.monotonic() - began:.0f} s | {told} |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.realkubevirt.stories", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the recordings are written there")
    parser.add_argument("--only", action="append", choices=EVERY, help="play this story; can be repeated")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the node thaws, and vmherd ends
    kubectl = Kubectl(Path(os.environ["KUBECONFIG"]))
    options.folder.mkdir(parents=True, exist_ok=True)
    with_disks = disk_stories.GUEST_DISK in os.environ
    default = [name for name in EVERY if needs_disks(name) == with_disks]
    wanted = [name for name in EVERY if name in (options.only or default)]
    for name in (name for name in wanted if name in SOLOS):
        tell(kubectl, name, options.folder)
    if pools := [name for name in wanted if name not in SOLOS]:
        with vmherd(kubectl, options.folder / "vmherd.log"):
            for name in pools:
                tell(kubectl, name, options.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
