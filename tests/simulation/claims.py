"""Kubernetes' protection of claims in use: a deleted claim stays until the last VMI that uses it has ended."""

from typing import Final

from controller.kubevirt.resources import PVCS, VMIS
from informers.meta import ObjectKey
from tests.fakes.requests import AnyResource, Document
from tests.fakes.rules import finalizers_of
from tests.simulation.server import Change, SimulatedServer

PROTECTION: Final = "kubernetes.io/pvc-protection"
SEEN_S: Final = 0.3


class ClaimProtection:
    def __init__(self, server: SimulatedServer) -> None:
        self._server = server
        self._is_planned = False
        server.on_change.append(self._notice)

    def _notice(self, change: Change) -> None:
        is_deleted = change.resource is PVCS and change.after is not None and is_terminating(change.after)
        is_free = change.resource is VMIS and (change.after is None or not _runs(change.after))
        if (is_deleted or is_free) and not self._is_planned:
            self._is_planned = True
            self._server.loop.call_later(SEEN_S, self._release)

    def _release(self) -> None:
        self._is_planned = False
        used: dict[ObjectKey, str] = {}
        for key, vmi in sorted(self._server._of(VMIS).items()):
            for name in claims_of(vmi) if _runs(vmi) else ():
                used[ObjectKey(key.namespace, name)] = vmi["metadata"]["creationTimestamp"]
        with self._server.acting("kubernetes"):
            for key, claim in sorted(self._server._of(PVCS).items()):
                # No Pod starts with a claim that is being deleted.
                is_used = key in used and used[key] <= claim["metadata"].get("deletionTimestamp", "")
                if is_terminating(claim) and PROTECTION in finalizers_of(claim) and not is_used:
                    left = [each for each in finalizers_of(claim) if each != PROTECTION]
                    self._server.change(PVCS, key, {"metadata": {"finalizers": left or None}})


def users_of_deleted_claims(server: SimulatedServer) -> list[tuple[AnyResource, ObjectKey]]:
    """The VMIs that use a claim that is being deleted."""
    ending = {key for key, claim in server._of(PVCS).items() if is_terminating(claim)}
    vmis = server._of(VMIS).items()
    return [(VMIS, key) for key, vmi in vmis if ending & {key._replace(name=each) for each in claims_of(vmi)}]


def is_terminating(document: Document) -> bool:
    return "deletionTimestamp" in document["metadata"]


def claims_of(vmi: Document) -> list[str]:
    """The names of the claims that a VMI uses: a DataVolume and its claim have one name."""
    sources = [(each.get("dataVolume", {}), "name") for each in vmi.get("spec", {}).get("volumes") or ()]
    sources += [
        (each.get("persistentVolumeClaim", {}), "claimName") for each in vmi.get("spec", {}).get("volumes") or ()
    ]
    return [source[field] for source, field in sources if field in source]


def _runs(vmi: Document) -> bool:
    return vmi.get("status", {}).get("phase") not in ("Failed", "Succeeded")
