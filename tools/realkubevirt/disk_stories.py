"""Stories of VMs whose disks CDI makes, under `python -m tools.realkubevirt --cdi CDI SOURCE`. See stories.py."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Final

from sandbox.processes import free_ports
from tests.controlplane.waits import eventually
from tools.realkubevirt.record import Recorder
from tools.realkubevirt.stage import LONG_S, OBJECTS, Fields, Stage

SIZE, LARGER = "96Mi", "160Mi"
BLANK: Final[Fields] = {"blank": {}}
AT_ONCE: Final = {"cdi.kubevirt.io/storage.bind.immediate.requested": ""}
GUEST_DISK: Final = "VMHERD_GUEST_DISK"
"""The variable with the path of the guest's disk. The command that brings up the cluster sets it."""


def disk(source: Fields, *, size: str = SIZE, storage_class: str = "local") -> Fields:
    storage = {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem", "storageClassName": storage_class}
    return {"source": source, "storage": {**storage, "resources": {"requests": {"storage": size}}}}


def with_disk(pool: Fields, made: Fields, *, boots: bool = False) -> None:
    """Give the pool, or a VM, a template of a disk. `boots` lets the VM boot from it."""
    holder = pool["spec"].get("virtualMachineTemplate", pool)["spec"]
    holder["dataVolumeTemplates"] = [{"metadata": {"name": "data"}, "spec": made}]
    guest = holder["template"]["spec"]
    volume, place = {"name": "data", "dataVolume": {"name": "data"}}, {"name": "data", "disk": {"bus": "virtio"}}
    guest["volumes"] = [*([] if boots else guest["volumes"]), volume]
    guest["domain"]["devices"]["disks"] = [*([] if boots else guest["domain"]["devices"]["disks"]), place]


# Stories without vmherd.


def made_and_deleted(stage: Stage, record: Recorder) -> str:
    """A VM with a blank disk is created, becomes ready and is deleted"""
    vm = deepcopy(OBJECTS["vm"])
    with_disk(vm, disk(BLANK))
    began = time.monotonic()
    record.act("VirtualMachine created", lambda: stage.kubectl.create(vm))
    stage.wait_ready(1)
    took = time.monotonic() - began
    says = stage.guest("vm")
    record.act("VirtualMachine deleted", lambda: stage.kubectl("delete", "vm", "vm", "--wait=false"))
    eventually(lambda: not stage.get("pvc", "data"), within_s=LONG_S, what="the disk is deleted")
    time.sleep(5)
    return f"ready after {took:.0f} s; {says['sectors'] // 2048} MiB in the guest; the disk went with the VM"


# Stories of pools under vmherd.


def lives(stage: Stage, *, keeps: str) -> str:
    """The starts that the disks count: after a restart, after an update, and after a scale-in and a scale-out."""
    make(stage, disk(BLANK), scaleInStrategy=strategy(keeps))
    first = starts(stage)
    stage.kubectl("delete", "vmi", "web-0", "--wait=false")
    until_starts(stage, [first[0] + 1, first[1]])
    restarted = starts(stage)
    image = [{"op": "replace", "path": f"{TEMPLATE}/volumes/0/containerDisk/image", "value": "localhost/guest:2"}]
    stage.change("vmpool", "web", image)
    until_starts(stage, [each + 1 for each in restarted])
    updated = starts(stage)
    scaled_in_and_out(stage)
    return f"starts of web-0 and web-1: {first}, restarted {restarted}, updated {updated}, scaled {starts(stage)}"


def healed(stage: Stage) -> str:
    """A VM whose guest is never ready is made again, with its disk."""
    make(stage, disk(BLANK), scaleInStrategy=strategy("Offline"))
    old, claim = stage.get("vm", "web-1")["metadata"]["uid"], stage.get("pvc", "data-1")["metadata"]["uid"]
    mark = {"metadata": {"annotations": {"vmherd.dev/replace-unready-after-seconds": "60"}}}
    stage.change("vmpool", "web", mark)
    nobody_listens = {"spec": {"template": {"spec": {"readinessProbe": {"tcpSocket": {"port": 81}}}}}}
    stage.change("vm", "web-1", nobody_listens)
    stage.kubectl("delete", "vmi", "web-1", "--wait=false")
    began = time.monotonic()
    eventually(
        lambda: stage.get("vm", "web-1").get("metadata", {}).get("uid", old) != old, within_s=LONG_S, what="a new web-1"
    )
    made = time.monotonic() - began
    stage.wait_ready(2)
    kept = "the same" if is_there(stage, "data-1", claim) else "another"
    return f"made again after {made:.0f} s with {kept} disk; starts {starts(stage)}"


def strategy(keeps: str) -> Fields:
    return {"proactive": {"selectionPolicy": {"sortPolicy": "DescendingOrder"}, "statePreservation": keeps}}


def scaled_in_and_out(stage: Stage) -> None:
    stage.change("vmpool", "web", {"spec": {"replicas": 1}})
    eventually(lambda: not stage.get("vm", "web-1"), within_s=LONG_S, what="web-1 is gone")
    stage.change("vmpool", "web", {"spec": {"replicas": 2}})
    stage.wait_ready(2)


def grows(stage: Stage, *, storage_class: str) -> str:
    """A larger disk in the template of a pool."""
    make(stage, disk(BLANK, storage_class=storage_class))
    before, sizes = {name: vmi["metadata"]["uid"] for name, vmi in stage.vmis().items()}, sectors(stage)
    path = "/spec/virtualMachineTemplate/spec/dataVolumeTemplates/0/spec/storage/resources/requests/storage"
    stage.change("vmpool", "web", [{"op": "replace", "path": path, "value": LARGER}])
    began = time.monotonic()
    while time.monotonic() - began < GROWS_WITHIN_S and not all(
        now > old for now, old in zip(sectors(stage), sizes, strict=True)
    ):
        time.sleep(2)
    took = time.monotonic() - began
    after = {name: vmi["metadata"]["uid"] for name, vmi in stage.vmis().items()}
    told = stage.plugin("why", "vmpool/web")
    stayed = sum(after.get(name) == uid for name, uid in before.items())
    return f"sectors {sizes} became {sectors(stage)} in {took:.0f} s; {stayed} of 2 VMIs stayed; why: {told}"


def imported(stage: Stage) -> str:
    """The VMs boot from a disk that CDI imports by HTTP."""
    with served(stage) as images:
        took = make(stage, disk({"http": {"url": f"{images}/{FIRST_IMAGE}"}}), boots=True)
        first = starts(stage)
    stage.kubectl("delete", "vmi", "web-0", "--wait=false")
    until_starts(stage, [first[0] + 1, first[1]])
    return f"ready after {took:.0f} s; starts {first}, restarted {starts(stage)}"


def standby(stage: Stage, *, mode: str) -> str:
    """The time from a scale-out to ready guests, without a standby and with one. The VMs boot from imported disks."""
    annotations = {"vmherd.dev/standby": "1", "vmherd.dev/standby-mode": mode}
    with served(stage) as images:
        make(stage, disk({"http": {"url": f"{images}/{FIRST_IMAGE}"}}), boots=True, replicas=1)
        without = scaled_out(stage, 2)
        stage.change("vmpool", "web", {"metadata": {"annotations": annotations}})
        eventually(lambda: resting(stage), within_s=LONG_S, what="a standby rests")
        return f"ready after {without:.0f} s without a standby, {scaled_out(stage, 3):.1f} s with one"


def scaled_out(stage: Stage, replicas: int) -> float:
    """Scale a pool out. Return the seconds until its guests are ready."""
    began = time.monotonic()
    stage.change("vmpool", "web", {"spec": {"replicas": replicas}})
    stage.wait_ready(replicas)
    return time.monotonic() - began


def resting(stage: Stage) -> bool:
    """Whether a VM rests. While its guest still stops, a scale-out would make a new VM."""
    vms, vmis = stage.kubectl.json("get", "vm")["items"], stage.vmis()
    halted = (vm["metadata"]["name"] for vm in vms if vm["spec"]["runStrategy"] == "Halted")
    marks = (vm["metadata"].get("annotations", {}).get("vmherd.dev/standby-state", "") for vm in vms)
    return any(name not in vmis for name in halted) or any(mark.startswith("paused ") for mark in marks)


def claimed(stage: Stage) -> str:
    """A user claims a ready VM, and releases it. Its disk goes with it."""
    make(stage, disk(BLANK))
    began = time.monotonic()
    name = stage.plugin("claim", "vmpool/web", "--for=job", "--wait=60s", "--output=name").strip().rpartition("/")[2]
    took = time.monotonic() - began
    eventually(lambda: stage.ready() == 3, within_s=LONG_S, what="another VM is ready")
    again = time.monotonic() - began
    disk_of = name.replace("web", "data")
    uid = stage.get("pvc", disk_of)["metadata"]["uid"]
    began = time.monotonic()
    stage.plugin("release", f"vm/{name}")
    eventually(lambda: not is_there(stage, disk_of, uid), within_s=LONG_S, what="the disk is deleted")
    gone = time.monotonic() - began
    times = f"claimed after {took:.1f} s, another VM is ready after {again:.0f} s"
    return f"{times}; the disk is gone {gone:.0f} s after the release"


def is_there(stage: Stage, claim: str, uid: str) -> bool:
    found = stage.get("pvc", claim)
    return bool(found) and found["metadata"]["uid"] == uid


TEMPLATE: Final = "/spec/virtualMachineTemplate/spec/template/spec"
DISKS: Final = ("data-0", "data-1")
FIRST_IMAGE, LATER_IMAGE = "guest.img", "later.img"
LATER_STARTS: Final = 100
MIB: Final = 2**20
COUNT_AT: Final = 48 * MIB
"""Where the guest keeps the count of its starts: see guest.sh."""

GROWS_WITHIN_S: Final = 120.0


def make(stage: Stage, made: Fields, *, boots: bool = False, replicas: int = 2, **spec: Fields) -> float:
    """Make a pool with disks. Return the seconds until its guests are ready."""
    pool = deepcopy(OBJECTS["pool"])
    pool["spec"] |= {"replicas": replicas, **spec}
    with_disk(pool, made, boots=boots)
    began = time.monotonic()
    stage.kubectl.create(pool)
    stage.wait_ready(replicas)
    return time.monotonic() - began


def starts(stage: Stage) -> list[int]:
    return [stage.guest(name)["starts"] for name in ("web-0", "web-1")]


def sectors(stage: Stage) -> list[int]:
    return [stage.guest(name)["sectors"] for name in ("web-0", "web-1")]


def until_starts(stage: Stage, wanted: list[int]) -> None:
    eventually(
        lambda: stage.ready() == 2 and starts(stage) == wanted, within_s=LONG_S, what=f"the disks have counted {wanted}"
    )


@contextmanager
def served(stage: Stage) -> Iterator[str]:
    """The URL at which Pods get both images during the block. The disk of the later one counts from 100."""
    [port] = free_ports(1)
    slices = stage.kubectl.json("get", "endpointslice", "kubernetes", "--namespace=default")
    address = slices["endpoints"][0]["addresses"][0]
    with tempfile.TemporaryDirectory() as folder:
        first, later = Path(folder) / FIRST_IMAGE, Path(folder) / LATER_IMAGE
        first.symlink_to(os.environ[GUEST_DISK])
        shutil.copy(first, later)
        with later.open("r+b") as image:
            image.seek(COUNT_AT)
            image.write(b"%-8d" % LATER_STARTS)
            image.truncate(COUNT_AT + MIB)
        command = [sys.executable, "-m", "http.server", str(port), f"--bind={address}", f"--directory={folder}"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
            try:
                yield f"http://{address}:{port}"
            finally:
                server.terminate()
