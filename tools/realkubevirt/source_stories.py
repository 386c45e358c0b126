"""Stories of disks that come from another object, and that other objects change. See disk_stories.py."""

import time
from typing import Final

from tests.controlplane.waits import eventually
from tools.realkubevirt.disk_stories import (
    AT_ONCE,
    BLANK,
    DISKS,
    FIRST_IMAGE,
    LARGER,
    LATER_IMAGE,
    LATER_STARTS,
    disk,
    make,
    scaled_out,
    served,
    starts,
    strategy,
    until_starts,
)
from tools.realkubevirt.stage import LONG_S, Fields, Stage

GOLDEN: Final = "golden"
CDI: Final = "cdi.kubevirt.io/v1beta1"
SNAPSHOTS: Final = "snapshot.kubevirt.io/v1beta1"
WEB_0: Final = {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "web-0"}


def cloned(stage: Stage) -> str:
    """The VMs boot from clones of an imported disk."""
    with served(stage) as images:
        began = time.monotonic()
        import_golden(stage, f"{images}/{FIRST_IMAGE}")
        took = time.monotonic() - began
    ready = make(stage, disk({"pvc": _here(stage)}), boots=True)
    return f"imported in {took:.0f} s, ready {ready:.0f} s later; starts {starts(stage)}; clones: {clones(stage)}"


def from_snapshot(stage: Stage) -> str:
    """The VMs boot from disks that are made of a snapshot."""
    with served(stage) as images:
        import_golden(stage, f"{images}/{FIRST_IMAGE}")
    stage.kubectl.create(
        {
            "apiVersion": "snapshot.storage.k8s.io/v1",
            "kind": "VolumeSnapshot",
            "metadata": {"name": GOLDEN},
            "spec": {"source": {"persistentVolumeClaimName": GOLDEN}},
        }
    )
    # A claim has more than its image, for the file system. CDI refuses a clone with less than the snapshot has.
    ready = make(stage, disk({"snapshot": _here(stage)}, size=LARGER), boots=True)
    return f"ready after {ready:.0f} s; starts {starts(stage)}; clones: {clones(stage)}"


def from_cron(stage: Stage) -> str:
    """A DataImportCron imports a new image. VMs that exist keep their disks, and a new VM gets the new image."""
    admin = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"}
    account = {"kind": "ServiceAccount", "name": "default", "namespace": stage.kubectl.namespace}
    stage.kubectl.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "clones"},
            "roleRef": admin,
            "subjects": [account],
        }
    )
    cron = {"schedule": "* * * * *", "managedDataSource": "boot", "template": {"spec": disk({"pvc": _here(stage)})}}
    with served(stage) as images:
        import_golden(stage, f"{images}/{FIRST_IMAGE}")
        stage.kubectl.create({"apiVersion": CDI, "kind": "DataImportCron", "metadata": {"name": "boot"}, "spec": cron})
        first = eventually(lambda: _source_of(stage), within_s=LONG_S, what="the first import of the cron")
        made = {"sourceRef": {"kind": "DataSource", "name": "boot"}, "storage": disk(BLANK)["storage"]}
        make(stage, made, boots=True, replicas=1)
        stage.kubectl("delete", "datavolume", GOLDEN)
        began = time.monotonic()
        import_golden(stage, f"{images}/{LATER_IMAGE}")
        eventually(lambda: _source_of(stage) not in ("", first), within_s=LONG_S, what="the next import of the cron")
        took = time.monotonic() - began
    ready = scaled_out(stage, 2)
    stage.kubectl("delete", "vmi", "web-0", "--wait=false")
    until_starts(stage, [2, LATER_STARTS + 1])
    again = f"web-0 started again: {starts(stage)}"
    return f"the DataSource changed after {took:.0f} s; web-1 ready {ready:.0f} s after the scale-out; starts, {again}"


def other_source(stage: Stage) -> str:
    """The template names another image. The VMs are made again, one by one."""
    with served(stage) as images:
        make(stage, disk({"http": {"url": f"{images}/{FIRST_IMAGE}"}}), boots=True)
        before, old = starts(stage), disk_uids(stage)
        path = "/spec/virtualMachineTemplate/spec/dataVolumeTemplates/0/spec/source/http/url"
        change = [{"op": "replace", "path": path, "value": f"{images}/{LATER_IMAGE}"}]
        began = time.monotonic()
        stage.change("vmpool", "web", change)
        ready: list[int] = []

        def ended() -> bool:
            ready.append(stage.ready())
            return ready[-1] == 2 and not old & disk_uids(stage)

        eventually(ended, within_s=2 * LONG_S, what="both VMs have new disks")
        took = time.monotonic() - began
    return f"starts {before} became {starts(stage)} in {took:.0f} s; never fewer than {min(ready)} ready"


def detached(stage: Stage) -> str:
    """A VM leaves its pool with its disk, and comes back with it."""
    make(stage, disk(BLANK), scaleInStrategy=strategy("Disabled"))
    stage.kubectl("delete", "vmi", "web-1", "--wait=false")
    until_starts(stage, [1, 2])
    before, old = stage.vmis()["web-1"]["metadata"]["uid"], disk_uids(stage)
    stage.plugin("detach", "vm/web-1")
    stage.wait_ready(3)
    names = sorted(stage.vmis())
    stage.change("vmpool", "web", {"spec": {"replicas": 1}})
    eventually(lambda: len(stage.vmis()) == 2, within_s=LONG_S, what="a scale-in leaves the detached VM alone")
    stage.change("vmpool", "web", {"spec": {"replicas": 2, "paused": True}})
    told = stage.plugin("adopt", "vm/web-1", "--to=vmpool/web").strip()
    stage.change("vmpool", "web", {"spec": {"paused": False}})
    time.sleep(10)
    stage.wait_ready(2)
    same = "kept its VMI" if stage.vmis()["web-1"]["metadata"]["uid"] == before else "has a new VMI"
    disks = "the first disks" if disk_uids(stage) == old else "other disks"
    return f"with {names} after detach; {told!r}; {sorted(stage.vmis())} with {disks}, web-1 {same}: {starts(stage)}"


def restored(stage: Stage) -> str:
    """A VM is snapshotted, and later restored, while its pool is scaled out."""
    make(stage, disk(BLANK))
    stage.kubectl("delete", "vmi", "web-0", "--wait=false")
    until_starts(stage, [2, 1])
    saved = {"apiVersion": SNAPSHOTS, "kind": "VirtualMachineSnapshot", "metadata": {"name": "saved"}}
    stage.kubectl.create({**saved, "spec": {"source": WEB_0}})
    stage.change("vmpool", "web", {"spec": {"replicas": 3}})
    began = time.monotonic()
    _wait_status(stage, "virtualmachinesnapshot", "saved", "readyToUse")
    snapshot = time.monotonic() - began
    stage.wait_ready(3)
    stage.kubectl("delete", "vmi", "web-0", "--wait=false")
    eventually(lambda: stage.ready() == 3 and starts(stage)[0] == 3, within_s=LONG_S, what="the third start")
    stage.change("vm", "web-0", {"spec": {"runStrategy": "Halted"}})
    eventually(lambda: "web-0" not in stage.vmis(), within_s=LONG_S, what="web-0 stops")
    restore = {"apiVersion": SNAPSHOTS, "kind": "VirtualMachineRestore", "metadata": {"name": "back"}}
    stage.kubectl.create({**restore, "spec": {"target": WEB_0, "virtualMachineSnapshotName": "saved"}})
    stage.change("vmpool", "web", {"spec": {"replicas": 4}})
    began = time.monotonic()
    _wait_status(stage, "virtualmachinerestore", "back", "complete")
    took = time.monotonic() - began
    stage.wait_ready(3)
    stage.change("vm", "web-0", {"spec": {"runStrategy": "Always"}})
    stage.wait_ready(4)
    counts = {name: stage.guest(name)["starts"] for name in sorted(stage.vmis())}
    return f"the snapshot took {snapshot:.0f} s with 2 starts, the restore {took:.0f} s after 3; then {counts}"


def import_golden(stage: Stage, url: str) -> None:
    """Import an image into the claim `golden`."""
    meta = {"name": GOLDEN, "annotations": AT_ONCE}
    stage.kubectl.create(
        {"apiVersion": CDI, "kind": "DataVolume", "metadata": meta, "spec": disk({"http": {"url": url}})}
    )
    eventually(
        lambda: stage.get("datavolume", GOLDEN).get("status", {}).get("phase") == "Succeeded",
        within_s=LONG_S,
        what="the import of the disk",
    )


def clones(stage: Stage) -> list[str]:
    """How CDI cloned the disks of the VMs."""
    claims = (stage.get("pvc", name) for name in DISKS)
    return [claim["metadata"]["annotations"].get("cdi.kubevirt.io/cloneType") for claim in claims]


def disk_uids(stage: Stage) -> set[str]:
    return {claim["metadata"]["uid"] for name in DISKS if (claim := stage.get("pvc", name))}


def _here(stage: Stage) -> Fields:
    return {"name": GOLDEN, "namespace": stage.kubectl.namespace}


def _source_of(stage: Stage) -> str:
    """What the DataSource points to."""
    return str(stage.get("datasource", "boot").get("status", {}).get("source") or "")


def _wait_status(stage: Stage, kind: str, name: str, field: str) -> None:
    eventually(lambda: stage.get(kind, name).get("status", {}).get(field), within_s=LONG_S, what=f"{kind}: {field}")
