"""The namespace of a case about pools. Most cases use VMs that do not run, because such cases are faster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from conformance.api import is_terminating
from conformance.case import Document
from conformance.namespace import BOOT_S, STOPPED_S, CaseNamespace
from conformance.templates import vm_template

NAME: Final = "pool"
LABELS: Final = {"app": "pool"}


class Pools(CaseNamespace):
    def template(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        running: bool = False,
        annotations: Mapping[str, str] | None = None,
        volumes: Sequence[Document] = (),
        disks: Sequence[str] = (),
    ) -> Document:
        return vm_template(
            self.conditions.image,
            {**LABELS, **(labels or {})},
            running=running,
            annotations=annotations,
            volumes=volumes,
            disks=disks,
        )

    def document(
        self,
        replicas: int | None = 2,
        *,
        name: str = NAME,
        template: Document | None = None,
        annotations: Mapping[str, str] | None = None,
        finalizers: Sequence[str] = (),
        **spec: Any,
    ) -> Document:
        vm = template or self.template()
        body: Document = {"selector": {"matchLabels": LABELS}, "virtualMachineTemplate": vm, **spec}
        if replicas is not None:
            body["replicas"] = replicas
        metadata: Document = {"name": name, "finalizers": list(finalizers)}
        if annotations:
            metadata["annotations"] = dict(annotations)
        return {"apiVersion": self.subject.api_version, "kind": self.subject.kind, "metadata": metadata, "spec": body}

    async def make(self, replicas: int | None = 2, **options: Any) -> Document:
        return await self.api.create(self.objects, self.document(replicas, **options))

    async def members(self, name: str = NAME) -> dict[str, Document]:
        """Return the VMs of a pool that are not being deleted, by name."""
        vms = await self.vms()
        return {key: vm for key, vm in vms.items() if self.owns(name, vm) and not is_terminating(vm)}

    async def until_names(self, *ordinals: int, name: str = NAME) -> dict[str, Document]:
        """Wait until the pool has exactly the VMs with these ordinals. Return the VMs."""
        wanted = {f"{name}-{ordinal}" for ordinal in ordinals}
        found = await self.until(
            f"the VMs {', '.join(sorted(wanted)) or 'none'}",
            lambda: self.members(name),
            lambda seen: seen.keys() == wanted,
            within_s=STOPPED_S,
        )
        await self.until(
            f"status.replicas {len(wanted)}",
            lambda: self.counts(name),
            lambda seen: seen[0] == len(wanted),
            within_s=STOPPED_S,
        )
        return found

    async def until_ready(self, number: int, name: str = NAME) -> dict[str, Document]:
        """Wait until this number of VMs exists and all are ready. Return the VMs."""
        await self.until_equal(f"{number} of {number} ready", lambda: self.counts(name), (number,) * 2, within_s=BOOT_S)
        return await self.until(f"{number} VMs", lambda: self.members(name), lambda seen: len(seen) == number)

    async def made(self, replicas: int = 2, **options: Any) -> dict[str, Document]:
        """Create a pool and wait for its VMs. Return the VMs."""
        await self.make(replicas, **options)
        return await self.until_names(*range(replicas))

    async def relabel_template(self, labels: Mapping[str, str], *, vmi: bool = False, name: str = NAME) -> None:
        """Add labels to the VM template, or to the VMI template inside the VM template."""
        change: Document = {"metadata": {"labels": dict(labels)}}
        if vmi:
            change = {"spec": {"template": change}}
        await self.change({"spec": {"virtualMachineTemplate": change}}, name)

    async def vm(self, name: str) -> Document:
        return await self.api.get(f"{self.vm_path}/{name}")

    async def vmi(self, name: str) -> Document:
        return await self.api.get(f"{self.vmi_path}/{name}")

    async def delete_vm(self, name: str, propagation: str = "Background") -> None:
        await self.api.delete(f"{self.vm_path}/{name}", propagation)
