"""The rules of kstatus for custom resources, as its documentation states them.

Helm 4 and Flux use the library itself. https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

CONDITIONS = {"Reconciling": "InProgress", "Stalled": "Failed"}


class KStatus(NamedTuple):
    status: str
    message: str = ""


def kstatus_of(item: Mapping[str, Any]) -> KStatus:
    """Return the status of an object that kstatus has no own rules for."""
    metadata, status = item["metadata"], item.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return KStatus("Terminating")
    observed = status.get("observedGeneration")
    if observed is not None and observed != metadata.get("generation"):
        return KStatus("InProgress", f"the observed generation is {observed}")
    for condition in status.get("conditions") or ():
        if condition["type"] in CONDITIONS and condition["status"] == "True":
            return KStatus(CONDITIONS[condition["type"]], condition.get("message", ""))
    return KStatus("Current")


def kstatus_after(owner: Any, status: Any) -> KStatus:
    """What kstatus says about a pool or a set with this status."""
    conditions = [msgspec.to_builtins(each) for each in status.conditions or ()]
    generations = {"observedGeneration": status.observed_generation, "conditions": conditions}
    return kstatus_of({"metadata": {"generation": owner.metadata.generation}, "status": generations})
