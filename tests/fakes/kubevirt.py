"""Simulates KubeVirt and CDI on the fake API server: the VM controller, the nodes that run VMIs, and disks."""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from controller.apimachinery.quantities import parse_quantity
from controller.kubevirt.resources import DATA_VOLUMES, PVCS, VMIS, VMS
from informers.meta import ObjectKey
from tests.controlplane.documents import reference_to
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.requests import AnyResource, Document, Request, refusal
from tests.fakes.rules import finalizers_of

VM_CONTROLLER: Final = "kubevirt.io/virtualMachineControllerFinalize"
DEFAULT_CLASS: Final = "standard"
DEFAULT_SIZE: Final = "1Gi"


class FakeKubeVirt:
    """Acts on the VMs of one namespace. If `cdi` is false, a disk is a PersistentVolumeClaim without a DataVolume."""

    def __init__(
        self, server: FakeApiServer, *, now: Callable[[], datetime], cdi: bool, namespace: str = "default"
    ) -> None:
        self._server = server
        self._now = now
        self._disks: AnyResource = DATA_VOLUMES if cdi else PVCS
        self._namespace = namespace
        server.on_update = self._restart
        server.check_patch = self._check_growth

    def act(self) -> None:
        """Let the nodes act once on each VMI, and then the VM controller on each VM."""
        vms = self._of(VMS)
        for name, vmi in self._of(VMIS).items():
            if "deletionTimestamp" in vmi["metadata"]:
                self._server.finalize(VMIS, self._key(name))
            elif name in vms and not is_ready(vmi):
                status = {"phase": "Running", "conditions": [self._ready(holds=True)]}
                self._server.change(VMIS, self._key(name), {"status": status})
        for name, claim in self._of(PVCS).items():
            if (capacity := _requests(claim)) != claim.get("status", {}).get("capacity", capacity):
                self._server.change(PVCS, self._key(name), {"status": {"capacity": capacity}})
        for name, vm in self._of(VMS).items():
            if "deletionTimestamp" in vm["metadata"]:
                self._end(name, vm)
            else:
                self._control(name, vm)

    def _end(self, name: str, vm: Document) -> None:
        """Delete the VMI of a terminating VM. Once the VMI is gone, remove the VM's finalizer."""
        vmi = self._vmi_of(vm)
        if vmi is None and VM_CONTROLLER in finalizers_of(vm):
            kept = [each for each in finalizers_of(vm) if each != VM_CONTROLLER]
            self._server.change(VMS, self._key(name), {"metadata": {"finalizers": kept}})
        elif vmi is not None and "deletionTimestamp" not in vmi["metadata"]:
            self._server.remove(VMIS, self._key(name))

    def _control(self, name: str, vm: Document) -> None:
        spec, vmi = vm["spec"], self._vmi_of(vm)
        if VM_CONTROLLER not in finalizers_of(vm):
            finalizers = [VM_CONTROLLER, *finalizers_of(vm)]
            self._server.change(VMS, self._key(name), {"metadata": {"finalizers": finalizers}})
        for template in spec.get("dataVolumeTemplates") or ():
            self._provide(template, owned_by(vm, "VirtualMachine"))
        if vmi is None and self._starts(vm):
            self._start(vm)
        elif vmi is not None and self._stops(vm, vmi) and "deletionTimestamp" not in vmi["metadata"]:
            self._server.remove(VMIS, self._key(name))
        self._report(name, vm)

    def _vmi_of(self, vm: Document) -> Document | None:
        return self._of(VMIS).get(vm["metadata"]["name"])

    def _restart(self, request: Request) -> Document:
        """Carry out a request to restart a VM. As with virt-api, the answer is empty."""
        vmi = self._server.document(VMIS, request.key)
        requests = [{"action": "Stop", "uid": vmi["metadata"]["uid"]}, {"action": "Start"}]
        self._server.change(VMS, request.key, {"status": {"stateChangeRequests": requests}})
        return {}

    def _starts(self, vm: Document) -> bool:
        """True if the VM controller must create a VMI for this VM. Call this only for a VM without a VMI."""
        strategy, status = vm["spec"].get("runStrategy"), vm.get("status") or {}
        requested = any(each["action"] == "Start" for each in status.get("stateChangeRequests") or ())
        is_new = status.get("runStrategy") != strategy
        return strategy in ("Always", "Once") or requested or (strategy == "RerunOnFailure" and is_new)

    def _stops(self, vm: Document, vmi: Document) -> bool:
        requests = (vm.get("status") or {}).get("stateChangeRequests") or ()
        requested = {"action": "Stop", "uid": vmi["metadata"]["uid"]} in requests
        return requested or vm["spec"].get("runStrategy") == "Halted"

    def _provide(self, template: Document, owner: Document) -> None:
        """Create or adopt a disk: a DataVolume with its PersistentVolumeClaim, or the claim alone."""
        name = template["metadata"]["name"]
        claim = {"spec": claim_spec(template)}
        claim["status"] = {"phase": "Bound", "capacity": _requests(claim)}
        resource, disk = self._disks, self._of(self._disks).get(name)
        if disk is None and name in self._of(PVCS):
            resource, disk = PVCS, self._of(PVCS)[name]
        if disk is None:
            content = {"spec": template.get("spec")} if self._disks is DATA_VOLUMES else claim
            disk = self._put(self._disks, {"metadata": {"name": name, "ownerReferences": [owner]}, **content})
            if self._disks is DATA_VOLUMES:
                metadata = {"name": name, "ownerReferences": [owned_by(disk, "DataVolume")]}
                self._put(PVCS, {"metadata": metadata, **claim})
        elif "ownerReferences" not in disk["metadata"] and "deletionTimestamp" not in disk["metadata"]:
            self._server.change(resource, self._key(name), {"metadata": {"ownerReferences": [owner]}})

    def _check_growth(self, resource: AnyResource, before: Document, after: Document) -> None:
        """Refuse that a claim shrinks."""
        if resource is not PVCS or "status" not in before or _requests(before) == _requests(after):
            return
        wanted, has = (parse_quantity(each["storage"]) for each in (_requests(after), before["status"]["capacity"]))
        if wanted is None or has is None or wanted < has:
            why = "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"
            raise refusal(422, "Invalid", f'PersistentVolumeClaim "{before["metadata"]["name"]}" is invalid: {why}')

    def _start(self, vm: Document) -> None:
        inner = vm["spec"]["template"]
        metadata = {
            "name": vm["metadata"]["name"],
            "labels": inner.get("metadata", {}).get("labels"),
            "ownerReferences": [owned_by(vm, "VirtualMachine")],
            "finalizers": ["kubevirt.io/foregroundDeleteVirtualMachine"],
        }
        status = {"phase": "Scheduling", "conditions": [self._ready(holds=False)]}
        self._put(VMIS, {"metadata": metadata, "spec": inner["spec"], "status": status})
        seen = {"stateChangeRequests": None, "runStrategy": vm["spec"].get("runStrategy")}
        self._server.change(VMS, self._key(metadata["name"]), {"status": seen})

    def _report(self, name: str, vm: Document) -> None:
        vmi = self._of(VMIS).get(name)
        ready = vmi is not None and is_ready(vmi)
        word = "Running" if ready else "Stopped" if vmi is None else "Starting"
        if (vm.get("status") or {}).get("printableStatus") != word:
            status = {"printableStatus": word, "conditions": [self._ready(holds=ready)]}
            self._server.change(VMS, self._key(name), {"status": status})

    def _ready(self, *, holds: bool) -> Document:
        moment = self._now().isoformat().replace("+00:00", "Z")
        return {"type": "Ready", "status": "True" if holds else "False", "lastTransitionTime": moment}

    def _of(self, resource: AnyResource) -> dict[str, Document]:
        return self._server.documents(resource, self._namespace)

    def _key(self, name: str) -> ObjectKey:
        return ObjectKey(self._namespace, name)

    def _put(self, resource: AnyResource, document: Document) -> Document:
        metadata = {**document["metadata"], "namespace": self._namespace}
        return self._server.put(resource, {**document, "metadata": metadata})


def claim_spec(template: Document) -> Document:
    """The spec of the claim for an entry of `dataVolumeTemplates`, with the default size and class."""
    spec = template.get("spec") or {}
    asked = spec.get("storage") or spec.get("pvc") or {}
    size = ((asked.get("resources") or {}).get("requests") or {}).get("storage", DEFAULT_SIZE)
    storage_class = asked.get("storageClassName", DEFAULT_CLASS)
    return {"resources": {"requests": {"storage": size}}, "storageClassName": storage_class}


def _requests(claim: Document) -> Document:
    requests: Document = claim.get("spec", {}).get("resources", {}).get("requests", {})
    return requests


def is_ready(vmi: Document) -> bool:
    return any(each["status"] == "True" for each in vmi.get("status", {}).get("conditions") or ())


def owned_by(owner: Document, kind: str) -> Document:
    """A controller reference to this owner."""
    return reference_to({**owner, "apiVersion": "kubevirt.io/v1", "kind": kind}, block=True)
