"""Waits until the controller has seen the VMIs of a namespace."""

from __future__ import annotations

from typing import Any

from tests.integration.controller_process import GROUP_VERSION, ReplicaSetNamespace, eventually, owner_uid

WITNESS = "witness"


def wait_until_seen(sets: ReplicaSetNamespace) -> None:
    """Wait until the controller's cache shows all earlier writes to VMIs.

    The function creates another VMI, and waits until a paused set adopts it. A paused set creates and deletes nothing.
    """
    labels: dict[str, Any] = {"labels": {"app": WITNESS}}
    selector = {"matchLabels": labels["labels"]}
    sets.make_vmi(WITNESS, **labels)
    sets.make_set(0, name=WITNESS, selector=selector, template_metadata=labels, paused=True)
    eventually(lambda: owner_uid(sets.vmis()[WITNESS]), what="the earlier writes are seen")
    path = f"/apis/{GROUP_VERSION}/namespaces/{sets.namespace}"
    for plural in ("virtualmachineinstances", "virtualmachineinstancereplicasets"):
        sets.ask("DELETE", f"{path}/{plural}/{WITNESS}")
