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
    """The facts about a cluster. `reconcilers` has the name of the controller of each kind, or "" without one."""

    subjects: Mapping[Kind, Subject]
    has: frozenset[Requirement] = frozenset()
    reconcilers: Mapping[Kind, str] = {}


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


async def expands_claims(api: Api) -> bool:
    classes = await api.items("/apis/storage.k8s.io/v1/storageclasses")
    defaults = [each for each in classes if (each["metadata"].get("annotations") or {}).get(IS_DEFAULT) == "true"]
    return any(each.get("allowVolumeExpansion") for each in defaults)


async def changes_running_vms(api: Api) -> bool:
    if not await serves(api, "kubevirt.io/v1", "kubevirts"):
        return False
    try:
        found = await api.items("/apis/kubevirt.io/v1/kubevirts")
    except Forbidden:
        return False
    settings = [(each.get("spec") or {}).get("configuration") or {} for each in found]
    return any(each.get("vmRolloutStrategy") == "LiveUpdate" for each in settings)


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
