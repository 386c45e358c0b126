"""Finds the facts about a cluster: the served kinds and their controllers. Finds out if a simulator runs the VMIs."""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from conformance.api import Api, managers_of
from conformance.case import Document, Kind, Requirement, Unmet
from conformance.namespace import CaseNamespace, Subject
from informers.errors import Forbidden

VMHERD: Final = "vmherd"
SIMULATOR: Final = "vmherd-simulator"
PROBE_S: Final = 20.0
"""The time limit for a first status by a controller, and for the start of a VMI, in seconds."""

GROUPS: Final[Mapping[Kind, tuple[str, str]]] = {
    Kind.SETS: ("kubevirt.io", "vmherd.dev"),
    Kind.POOLS: ("pool.kubevirt.io", "pool.vmherd.dev"),
}
"""For each kind, KubeVirt's API group and the group of the mode `alongside`."""

IS_DEFAULT: Final = "storageclass.kubernetes.io/is-default-class"
"""The annotation of the StorageClass that claims without a class get."""

PLURALS: Final = {Kind.SETS: "virtualmachineinstancereplicasets", Kind.POOLS: "virtualmachinepools"}
VERSIONS: Final = ("v1", "v1beta1", "v1alpha1")


class Cluster(Struct, frozen=True, kw_only=True):
    """The facts about a cluster. `reconcilers` has the name of the controller of each kind, or "" without one.
    `versions` has what a reader of a report must know, such as the version of KubeVirt.
    """

    subjects: Mapping[Kind, Subject]
    has: frozenset[Requirement] = frozenset()
    reconcilers: Mapping[Kind, str] = {}
    versions: Mapping[str, str] = {}


async def find_subject(api: Api, kind: Kind, groups: Sequence[str]) -> Subject | None:
    for group in groups:
        served = await api.find(f"/apis/{group}")
        versions = [each["version"] for each in served["versions"]] if served else []
        for version in (version for version in VERSIONS if version in versions):
            listed = await api.get(f"/apis/{group}/{version}")
            for resource in listed.get("resources") or ():
                if resource["name"] == PLURALS[kind]:
                    short = tuple(resource.get("shortNames") or ())
                    return Subject(group, version, resource["name"], resource["kind"], short, tuple(versions))
    return None


async def serves(api: Api, group_version: str, plural: str) -> bool:
    listed = await api.find(f"/apis/{group_version}")
    return listed is not None and any(each["name"] == plural for each in listed.get("resources") or ())


async def default_classes(api: Api) -> list[Document]:
    classes = await api.items("/apis/storage.k8s.io/v1/storageclasses")
    return [each for each in classes if (each["metadata"].get("annotations") or {}).get(IS_DEFAULT) == "true"]


async def expands_claims(api: Api) -> bool:
    return any(each.get("allowVolumeExpansion") for each in await default_classes(api))


async def _kubevirts(api: Api) -> list[Document]:
    if not await serves(api, "kubevirt.io/v1", "kubevirts"):
        return []
    try:
        return await api.items("/apis/kubevirt.io/v1/kubevirts")
    except Forbidden:
        return []


async def changes_running_vms(api: Api) -> bool:
    settings = [(each.get("spec") or {}).get("configuration") or {} for each in await _kubevirts(api)]
    return any(each.get("vmRolloutStrategy") == "LiveUpdate" for each in settings)


async def versions_of(api: Api) -> Mapping[str, str]:
    """Return what a reader of a report must know about the cluster. What the user may not read is left out."""
    versions = [(each.get("status") or {}).get("observedKubeVirtVersion") for each in await _kubevirts(api)]
    classes = [f"{each['metadata']['name']} ({each['provisioner']})" for each in await default_classes(api)]
    try:
        nodes = str(len(await api.items("/api/v1/nodes")))
    except Forbidden:
        nodes = ""
    found = {
        "Kubernetes": (await api.get("/version"))["gitVersion"],
        "KubeVirt": ", ".join(filter(None, versions)),
        "nodes": nodes,
        "default StorageClass": ", ".join(classes),
    }
    return {name: value for name, value in found.items() if value}


async def probe(space: CaseNamespace) -> tuple[str, bool]:
    """Create one object of the kind. Return the name of its controller and whether a simulator runs its VMI."""
    await space.make(1, name="probe", template=space.template(running=True))

    async def look() -> tuple[str, Document | None]:
        writers = managers_of(await space.read("probe"), "status")
        vmis = [vmi for vmi in (await space.vmis()).values() if (vmi.get("status") or {}).get("phase")]
        return min(writers, default=""), vmis[0] if vmis else None

    try:
        reconciler, vmi = await space.until("a status and a VMI", look, all, within_s=PROBE_S)
    except Unmet:
        reconciler, vmi = await look()
    return reconciler, vmi is not None and SIMULATOR in managers_of(vmi)
