"""The namespace of a case about replica sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from conformance.api import is_terminating
from conformance.case import Document
from conformance.namespace import BOOT_S, CaseNamespace
from conformance.templates import vmi_template

NAME: Final = "herd"
LABELS: Final = {"app": "herd"}
ENDED: Final = ("Succeeded", "Failed")


class ReplicaSets(CaseNamespace):
    def template(
        self, labels: Mapping[str, str] | None = None, annotations: Mapping[str, str] | None = None
    ) -> Document:
        return vmi_template(self.conditions.image, {**LABELS, **(labels or {})}, annotations=annotations)

    def document(
        self,
        replicas: int | None = 2,
        *,
        name: str = NAME,
        template: Document | None = None,
        annotations: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> Document:
        body: Document = {"selector": {"matchLabels": LABELS}, "template": template or self.template(), **spec}
        if replicas is not None:
            body["replicas"] = replicas
        metadata: Document = {"name": name}
        if annotations:
            metadata["annotations"] = dict(annotations)
        return {"apiVersion": self.subject.api_version, "kind": self.subject.kind, "metadata": metadata, "spec": body}

    async def make(self, replicas: int | None = 2, **options: Any) -> Document:
        return await self.api.create(self.objects, self.document(replicas, **options))

    async def members(self, name: str = NAME) -> dict[str, Document]:
        """Return the active VMIs of a set, by name."""
        vmis = await self.vmis()
        return {
            key: vmi
            for key, vmi in vmis.items()
            if self.owns(name, vmi) and not is_terminating(vmi) and _phase(vmi) not in ENDED
        }

    async def until_members(self, number: int, name: str = NAME) -> dict[str, Document]:
        """Wait until the set and its status have this number of VMIs. Return the VMIs."""
        await self.until(f"{number} VMIs", lambda: self.members(name), lambda seen: len(seen) == number)
        await self.until(f"status.replicas {number}", lambda: self.counts(name), lambda seen: seen[0] == number)
        return await self.members(name)

    async def until_ready(self, number: int, name: str = NAME) -> dict[str, Document]:
        """Wait until this number of VMIs exists and all are ready. Return the VMIs."""
        await self.until_equal(f"{number} of {number} ready", lambda: self.counts(name), (number,) * 2, within_s=BOOT_S)
        return await self.until_members(number, name)

    async def made(self, replicas: int = 2, **options: Any) -> dict[str, Document]:
        """Create a set and wait for its VMIs. Return the VMIs."""
        await self.make(replicas, **options)
        return await self.until_members(replicas)


def _phase(vmi: Document) -> str:
    return str((vmi.get("status") or {}).get("phase", ""))
