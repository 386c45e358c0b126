"""This module decides about the eviction of a virt-launcher Pod, as KubeVirt's webhook does. All functions are pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

Document = Mapping[str, Any]


class Verdict(Struct, frozen=True):
    """The answer to an eviction. `denial` is "" if the Pod may be evicted.

    If `is_marked` is True, the VMI gets `status.evacuationNodeName`. KubeVirt then migrates the VMI.
    """

    denial: str = ""
    is_marked: bool = False


def decide(pod: Document, vmi: Document) -> Verdict:
    """Return whether the Pod of this VMI may be evicted."""
    phase = (pod.get("status") or {}).get("phase")
    if (pod["metadata"].get("labels") or {}).get("kubevirt.io") != "virt-launcher" or phase in ("Succeeded", "Failed"):
        return Verdict()
    name, status = vmi["metadata"]["name"], vmi.get("status") or {}
    strategy, is_migratable = vmi["spec"].get("evictionStrategy"), _is_migratable(status)
    if strategy == "LiveMigrate" and not is_migratable:
        return Verdict(f"VMI {name} is configured with an eviction strategy but is not live-migratable")
    if strategy not in ("LiveMigrate", "LiveMigrateIfPossible", "External"):
        return Verdict()
    if strategy == "LiveMigrateIfPossible" and not is_migratable:
        return Verdict()
    triggered = f'Eviction triggered evacuation of VMI "{vmi["metadata"]["namespace"]}/{name}"'
    if status.get("evacuationNodeName"):
        return Verdict(f"Evacuation in progress: {triggered}")
    if status.get("nodeName") != pod["spec"].get("nodeName"):
        return Verdict("Eviction request for target Pod")
    return Verdict(triggered, is_marked=True)


def _is_migratable(status: Document) -> bool:
    conditions = status.get("conditions") or ()
    return any(each["type"] == "LiveMigratable" and each["status"] == "True" for each in conditions)
