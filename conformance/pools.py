"""The namespace of a case about pools. Most cases use VMs that do not run, because such cases are faster."""

from collections.abc import Mapping
from typing import Any, Final

from conformance.api import Api
from conformance.case import Document
from conformance.namespace import STOPPED_S, CaseNamespace, Conditions, Subject
from conformance.templates import vm_template

NAME: Final = "pool"
LABELS: Final = {"app": NAME}


class Pools(CaseNamespace):
    name, template_field, member = NAME, "virtualMachineTemplate", "VM"

    def __init__(self, api: Api, namespace: str, subject: Subject, conditions: Conditions) -> None:
        super().__init__(api, namespace, subject, conditions)
        self.member_path = self.vm_path

    def template(self, *, labels: Mapping[str, str] | None = None, **options: Any) -> Document:
        return vm_template(self.conditions.image, {**LABELS, **(labels or {})}, **options)

    def vmi_spec_in(self, template: Document) -> Document:
        spec: Document = template["spec"]["template"]["spec"]
        return spec

    async def until_names(self, *ordinals: int, name: str = NAME) -> dict[str, Document]:
        wanted = {f"{name}-{ordinal}" for ordinal in ordinals}
        found = await self.until(
            f"the VMs {', '.join(sorted(wanted)) or 'none'}",
            lambda: self.members(name),
            lambda seen: seen.keys() == wanted,
            within_s=STOPPED_S,
        )
        await self.until_replicas(len(wanted), name)
        return found

    async def made(self, replicas: int = 2, **options: Any) -> dict[str, Document]:
        await self.make(replicas, **options)
        return await self.until_names(*range(replicas))

    async def relabel_template(self, labels: Mapping[str, str], *, vmi: bool = False) -> None:
        change: Document = {"metadata": {"labels": dict(labels)}}
        if vmi:
            change = {"spec": {"template": change}}
        await self.change({"spec": {"virtualMachineTemplate": change}})

    async def vm(self, name: str) -> Document:
        return await self.api.get(f"{self.vm_path}/{name}")

    async def until_new(self, name: str, before: Mapping[str, Document], *, within_s: float = STOPPED_S) -> None:
        uid = before[name]["metadata"]["uid"]
        await self.until(
            f"a new VM {name}",
            self.members,
            lambda seen: name in seen and seen[name]["metadata"]["uid"] != uid,
            within_s=within_s,
        )

    async def delete_vm(self, name: str, propagation: str = "Background") -> None:
        await self.api.delete(f"{self.vm_path}/{name}", propagation)
