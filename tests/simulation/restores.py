"""A backup tool: a pool is lost with its VMs, and comes back without the references between them.

The tool makes the VMs first, or the pool. With a VirtualMachineRestore, their disks have new names. Some time later, a
user makes the VMs without an owner members of the pool.
"""

from controller.kubevirt import annotations as names
from controller.kubevirt.resources import VMS
from informers.meta import ObjectKey
from tests.controlplane.documents import reference_to
from tests.fakes.requests import Document
from tests.simulation.objects import controller_uid
from tests.simulation.server import SimulatedServer
from tests.simulation.world import POOLS


def restored(vms: list[Document], *, renamed: bool) -> list[Document]:
    """The VMs as the tool makes them: without their owner, finalizers, status and notes of vmherd."""
    return [_restored(each["metadata"], _with_other_disks(each["spec"]) if renamed else each["spec"]) for each in vms]


def _restored(meta: Document, spec: Document) -> Document:
    kept = {name: text for name, text in (meta.get("annotations") or {}).items() if not name.startswith(names.PREFIX)}
    labels = meta.get("labels")
    metadata = {"name": meta["name"], "namespace": meta["namespace"], "labels": labels, "annotations": kept}
    return {"metadata": metadata, "spec": spec}


def _with_other_disks(spec: Document) -> Document:
    templates, inner = spec.get("dataVolumeTemplates") or [], spec["template"]["spec"]
    new = {each["metadata"]["name"]: f"restore-{each['metadata']['name']}" for each in templates}
    disks = [{**each, "metadata": {"name": new[each["metadata"]["name"]]}} for each in templates]
    volumes = [_renamed(each, new) for each in inner["volumes"]]
    template = {**spec["template"], "spec": {**inner, "volumes": volumes}}
    return {**spec, "template": template, "dataVolumeTemplates": disks or None}


def _renamed(volume: Document, new: dict[str, str]) -> Document:
    name = (volume.get("dataVolume") or {}).get("name")
    return {**volume, "dataVolume": {"name": new[name]}} if name in new else volume


def put_missing(server: SimulatedServer, vms: list[Document]) -> None:
    for each in vms:
        key = ObjectKey(each["metadata"]["namespace"], each["metadata"]["name"])
        if server.current(VMS, key) is None:
            with server.acting("user"):
                server.put(VMS, each)


def adopt_all(server: SimulatedServer, key: ObjectKey) -> None:
    """What `kubectl vmherd adopt` does with the VMs that have a name of the pool and no owner."""
    pool = server.current(POOLS, key)
    if pool is None or "deletionTimestamp" in pool["metadata"]:
        return
    owned, labels = [reference_to(pool, block=True)], pool["spec"]["selector"]["matchLabels"]
    for name, vm in sorted(server.documents(VMS, key.namespace).items()):
        is_named = name.rpartition("-")[0] == key.name
        if is_named and not controller_uid(vm) and "deletionTimestamp" not in vm["metadata"]:
            change = {"ownerReferences": owned, "labels": {**labels, names.REVISION_NAME: None}}
            with server.acting("user"):
                server.change(VMS, ObjectKey(key.namespace, name), {"metadata": change})
