"""The namespace of one case, with functions that read objects and wait for states."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from msgspec import Struct

from conformance.api import Api, condition_of, controller_of, describe, finalizers_of, is_terminating, require
from conformance.case import Document, Skip, Unmet
from conformance.templates import HOLD, vmi_spec
from informers.errors import ApiError, StatusError

T = TypeVar("T")

POLL_S = 0.2
CONTROL_S = 30.0
"""The time limit for changes that need only the API server and the controller."""

STOPPED_S = 60.0
"""The time limit for changes of VMs that do not run."""

BOOT_S = 180.0
"""The time limit for changes that need a VM to start or to stop."""

SEEN_S = 1.1
"""The time in which a cache sees a change. It is also enough for different creation times, in whole seconds."""

QUIET_S = 3.0
"""The observation time for a state that must not change."""


class Subject(Struct, frozen=True):
    group: str
    version: str
    plural: str
    kind: str
    short_names: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"

    def path(self, namespace: str) -> str:
        return f"/apis/{self.api_version}/namespaces/{namespace}/{self.plural}"


class Conditions(Struct, frozen=True, kw_only=True):
    """The settings for all cases of a run. `patience` multiplies each time limit."""

    image: str
    patience: float = 1.0


class CaseNamespace(ABC):
    """One namespace with objects of one kind. A method without a name is about the object with the usual name."""

    name = ""
    template_field = ""
    """The field of the spec that has the template of the members."""

    member = ""

    def __init__(self, api: Api, namespace: str, subject: Subject, conditions: Conditions) -> None:
        self.api = api
        self.namespace = namespace
        self.subject = subject
        self.conditions = conditions
        self.objects = subject.path(namespace)
        kubevirt = f"/apis/kubevirt.io/v1/namespaces/{namespace}"
        self.vmi_path = f"{kubevirt}/virtualmachineinstances"
        self.migration_path = f"{kubevirt}/virtualmachineinstancemigrations"
        self.vm_path = f"{kubevirt}/virtualmachines"
        self.member_path = self.vmi_path
        self.core = f"/api/v1/namespaces/{namespace}"
        self.volumes = f"/apis/cdi.kubevirt.io/v1beta1/namespaces/{namespace}/datavolumes"
        self.revision_path = f"/apis/apps/v1/namespaces/{namespace}/controllerrevisions"

    # Waits

    async def until(
        self,
        expected: str,
        look: Callable[[], Awaitable[T]],
        met: Callable[[T], object],
        *,
        within_s: float = CONTROL_S,
    ) -> T:
        """Call `look` until `met` accepts the result, and return the result. Raises Unmet after `within_s` seconds."""
        limit_s = within_s * self.conditions.patience
        seen = "nothing"
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while True:
                    try:
                        found = await look()
                    except ApiError as error:
                        seen = str(error)
                    else:
                        if met(found):
                            return found
                        seen = describe(found)
                    await asyncio.sleep(POLL_S)
        raise Unmet(f"{expected} within {limit_s:g} s", seen)

    async def until_equal(
        self, expected: str, look: Callable[[], Awaitable[T]], value: object, *, within_s: float = CONTROL_S
    ) -> T:
        return await self.until(expected, look, lambda found: found == value, within_s=within_s)

    async def stays(
        self, expected: str, look: Callable[[], Awaitable[T]], met: Callable[[T], object], *, for_s: float = QUIET_S
    ) -> None:
        """Call `look` repeatedly for `for_s` seconds. Raise Unmet if `met` rejects a result of `look`."""
        loop = asyncio.get_running_loop()
        end = loop.time() + for_s
        while loop.time() < end:
            found = await look()
            require(f"{expected} for {for_s:g} s", met(found), found)
            await asyncio.sleep(POLL_S)

    async def refused(self, what: str, document: Document, *about: str) -> bool:
        """Return True if the server rejects this object. Raises Unmet if its message lacks a word in `about`."""
        try:
            await self.api.create(self.objects, document)
        except StatusError as error:
            told = error.code in (400, 403, 422) and all(word in str(error) for word in about)
            require(f"a refusal of {what} that names {', '.join(about) or 'the field'}", told, str(error))
            return True
        return False

    # The kind under test

    @abstractmethod
    def template(self, *, running: bool = False) -> Document:
        """Return a template of members. With `running`, a member starts."""

    @abstractmethod
    def vmi_spec_in(self, template: Document) -> Document:
        """Return the part of the template that is the spec of a VMI."""

    @property
    def labels(self) -> dict[str, str]:
        return {"app": self.name}

    def document(
        self,
        replicas: int | None = 2,
        *,
        name: str = "",
        template: Document | None = None,
        annotations: Mapping[str, str] | None = None,
        finalizers: Sequence[str] = (),
        **spec: Any,
    ) -> Document:
        body: Document = {"selector": {"matchLabels": self.labels}, self.template_field: template or self.template()}
        if replicas is not None:
            body["replicas"] = replicas
        return {
            "apiVersion": self.subject.api_version,
            "kind": self.subject.kind,
            "metadata": {
                "name": name or self.name,
                "annotations": dict(annotations or {}),
                "finalizers": list(finalizers),
            },
            "spec": body | spec,
        }

    async def make(self, replicas: int | None = 2, **options: Any) -> Document:
        return await self.api.create(self.objects, self.document(replicas, **options))

    async def made(self, replicas: int = 2, **options: Any) -> dict[str, Document]:
        await self.make(replicas, **options)
        return await self.until_members(replicas)

    async def members(self, name: str = "") -> dict[str, Document]:
        return {key: each for key, each in (await self.all_members()).items() if self.has_active(each, name)}

    async def all_members(self) -> dict[str, Document]:
        return _by_name(await self.api.items(self.member_path))

    def has_active(self, document: Document, name: str = "") -> bool:
        owner = controller_of(document)
        owned = owner is not None and owner["kind"] == self.subject.kind and owner["name"] == (name or self.name)
        return owned and not is_terminating(document)

    async def until_members(self, number: int, name: str = "") -> dict[str, Document]:
        what = f"{number} {self.member}s"
        await self.until(what, lambda: self.members(name), lambda seen: len(seen) == number, within_s=STOPPED_S)
        await self.until_replicas(number, name)
        return await self.members(name)

    async def until_replicas(self, number: int, name: str = "") -> None:
        what = f"status.replicas {number}"
        await self.until(what, lambda: self.counts(name), lambda seen: seen[0] == number, within_s=STOPPED_S)

    async def until_ready(self, number: int) -> dict[str, Document]:
        await self.until_equal(f"{number} of {number} ready", self.counts, (number,) * 2, within_s=BOOT_S)
        return await self.until_members(number)

    def path(self, name: str = "", subresource: str = "") -> str:
        return "/".join(part for part in (self.objects, name or self.name, subresource) if part)

    async def read(self, name: str = "") -> Document:
        return await self.api.get(self.path(name))

    async def status(self, name: str = "") -> Document:
        return (await self.read(name)).get("status") or {}

    async def condition(self, type_: str) -> Document | None:
        return condition_of(await self.read(), type_)

    async def until_condition(self, type_: str) -> Document:
        found = await self.until(
            f"the condition {type_}=True", lambda: self.condition(type_), lambda seen: seen and seen["status"] == "True"
        )
        return found or {}

    async def change(self, change: Document, name: str = "") -> Document:
        return await self.api.merge(self.path(name), change)

    async def pause(self) -> None:
        await self.change({"spec": {"paused": True}})
        await self.until_condition("ReplicaPaused")

    async def resume(self) -> None:
        await self.change({"spec": {"paused": False}})

    async def scale(self, replicas: int, name: str = "") -> None:
        await self.change({"spec": {"replicas": replicas}}, name)

    async def autoscale(self, replicas: int) -> None:
        reference = {"apiVersion": self.subject.api_version, "kind": self.subject.kind, "name": self.name}
        body = {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": self.name},
            "spec": {"minReplicas": replicas, "maxReplicas": replicas, "scaleTargetRef": reference},
        }
        await self.api.create(f"/apis/autoscaling/v2/namespaces/{self.namespace}/horizontalpodautoscalers", body)

    async def delete(self, propagation: str = "Background") -> None:
        await self.api.delete(self.path(), propagation)
        await self.until_equal(f"no {self.name}", lambda: self.api.find(self.path()), None, within_s=BOOT_S)

    async def counts(self, name: str = "") -> tuple[int, int]:
        status = await self.status(name)
        return status.get("replicas", 0), status.get("readyReplicas", 0)

    # The objects around it

    async def vmis(self) -> dict[str, Document]:
        return _by_name(await self.api.items(self.vmi_path))

    async def vms(self) -> dict[str, Document]:
        return _by_name(await self.api.items(self.vm_path))

    async def migrations(self) -> dict[str, Document]:
        return _by_name(await self.api.items(self.migration_path))

    async def claims(self) -> dict[str, Document]:
        return _by_name(await self.api.items(f"{self.core}/persistentvolumeclaims"))

    async def data_volumes(self) -> dict[str, Document]:
        return _by_name(await self.api.items(self.volumes))

    async def revisions(self) -> dict[str, Document]:
        """Return the revisions of pools by name. The revisions that KubeVirt writes when a VM starts are left out."""
        found = _by_name(await self.api.items(self.revision_path))
        return {name: each for name, each in found.items() if not name.startswith("revision-start-vm-")}

    async def reasons(self) -> set[str]:
        about = (self.subject.kind, self.name)
        events = await self.api.items(f"{self.core}/events")
        return {
            event["reason"]
            for event in events
            if (event["involvedObject"].get("kind"), event["involvedObject"].get("name")) == about
        }

    async def until_told(self, *reasons: str, within_s: float = CONTROL_S) -> None:
        expected = f"Events {', '.join(reasons)}"
        await self.until(expected, self.reasons, lambda seen: seen >= {*reasons}, within_s=within_s)

    async def make_vmi(self, name: str, labels: dict[str, str], owners: Sequence[Document] = ()) -> Document:
        body = {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachineInstance",
            "metadata": {"name": name, "labels": labels, "ownerReferences": list(owners)},
            "spec": vmi_spec(self.conditions.image),
        }
        return await self.api.create(self.vmi_path, body)

    async def hold(self, path: str) -> None:
        """Add a finalizer of the suite to an object. A deleted object then stays until `let_go` is called."""
        at = "/metadata/finalizers"
        at, value = (f"{at}/-", HOLD) if finalizers_of(await self.api.get(path)) else (at, [HOLD])
        await self.api.steps(path, {"op": "add", "path": at, "value": value})

    async def let_go(self, path: str) -> None:
        async def removed() -> bool:
            found = await self.api.find(path)
            if found is not None and HOLD in finalizers_of(found):
                at = f"/metadata/finalizers/{finalizers_of(found).index(HOLD)}"
                await self.api.steps(path, {"op": "test", "path": at, "value": HOLD}, {"op": "remove", "path": at})
            return True

        await self.until("the finalizer of the suite is removed", removed, bool)

    def new_member(self, name: str) -> Document:
        """Return a member that does not run and that no object owns. It has no labels."""
        kind = "VirtualMachine" if self.member == "VM" else "VirtualMachineInstance"
        spec = self.template()["spec"]
        return {"apiVersion": "kubevirt.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}

    async def forbid(self) -> None:
        counted = f"count/{self.member_path.rpartition('/')[2]}.kubevirt.io"
        body = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "none"},
            "spec": {"hard": {counted: "0"}},
        }
        quota = f"{self.core}/resourcequotas"
        await self.api.create(quota, body)
        # The quota is in force only after its status is set. Without a quota controller, the status stays empty.
        used = str(len(await self.all_members()))
        await self.api.merge(f"{quota}/none/status", {"status": {"hard": {counted: "0"}, "used": {counted: used}}})

        async def refusal() -> str:
            try:
                await self.api.create(self.member_path, self.new_member("probe"), dryRun="All")
            except StatusError as error:
                return str(error)
            return ""

        message = await self.until("a quota in force", refusal, bool)
        if "quota" not in message:
            raise Skip(f"the quota cannot be checked: {message}")

    async def allow(self) -> None:
        await self.api.delete(f"{self.core}/resourcequotas/none")


def _by_name(items: Sequence[Document]) -> dict[str, Document]:
    return {item["metadata"]["name"]: item for item in items}
