"""What KubeVirt does with the changed template of a VM that runs.

With `LiveUpdate`, the running VMI gets another node selector at once, and more CPU sockets by a migration. A template
that differs elsewhere from the one with which the VMI started needs a restart, which the condition RestartRequired of
the VM says. With `Stage`, every difference needs a restart. Since 1.9, KubeVirt plugs `hotpluggable` volumes into VMIs
that run, with each strategy. Before, it ignores them. KubeVirt has seen the spec whose generation is in
`status.desiredGeneration`. Without a strategy, KubeVirt is too old for all this.
"""

from collections.abc import Callable
from random import Random
from typing import Any, Final

from controller.kubevirt.annotations import VM_GENERATION
from controller.kubevirt.live_updates import LIVE_FIELDS
from controller.kubevirt.normal_form import without
from controller.kubevirt.resources import MIGRATIONS, VMIS
from informers.meta import ObjectKey
from tests.fakes.requests import Document
from tests.simulation.server import SimulatedServer

LIVE_UPDATE, STAGE = "LiveUpdate", "Stage"
NO_METHODS: Final = "LiveUpdate, without LiveMigrate"
"""KubeVirt's default: it starts no migration, so more CPU sockets never end."""

IMMOVABLE: Final = "LiveUpdate, VMs that cannot migrate"
BOUND: Final = {"type": "LiveMigratable", "status": "False", "reason": "DisksNotLiveMigratable"}
RESTART: Final = "RestartRequired"
OTHER_FIELD: Final = "a non-live-updatable field was changed in the template spec"
FEWER_SOCKETS: Final = "Reduction of CPU socket count requires a restart"


class LiveUpdates:
    def __init__(self, api: SimulatedServer, chance: Random, after: Callable[..., None], options: Any) -> None:
        self._api = api
        self._chance = chance
        self._after = after
        self.strategy = options.rollout
        self._plugs = options.plugs
        self._started: dict[str, Document] = {}
        """The template with which each VMI started, by its UID."""

    def first_status(self, spec: Document) -> Document:
        """The status with which a VMI is created."""
        bound: Document = {"conditions": [BOUND]} if self.strategy == IMMOVABLE else {}
        return {"phase": "Pending", "currentCPUTopology": {"sockets": _sockets(spec)}, **bound}

    def begin(self, vmi: Document, template: Document) -> None:
        self._started[vmi["metadata"]["uid"]] = template

    def note_generation(self, key: ObjectKey, vm: Document, vmi: Document) -> None:
        """KubeVirt notes the generation of a VM with the template of the VMI's start, also after a live change."""
        meta, generation = vmi["metadata"], str(vm["metadata"]["generation"])
        noted = (meta.get("annotations") or {}).get(VM_GENERATION)
        if noted != generation and self._started.get(meta["uid"]) == vm["spec"]["template"]:
            self._api.change(VMIS, key, {"metadata": {"annotations": {VM_GENERATION: generation}}})

    def report(
        self, key: ObjectKey, vm: Document, vmi: Document | None, conditions: list[Document], now: str
    ) -> list[Document]:
        """Return the conditions of the VM with RestartRequired, if it holds. It ends when the next VMI starts."""
        old = next((each for each in conditions if each["type"] == RESTART), None)
        why = old["message"] if old else ""
        if vmi is not None and "deletionTimestamp" not in vmi["metadata"]:
            why = self._apply(key, vm, vmi) if vmi["status"].get("phase") == "Running" else ""
        if old and old["message"] == why:
            return conditions
        rest = [each for each in conditions if each is not old]
        new = {"type": RESTART, "status": "True", "message": why, "lastTransitionTime": now}
        return [*rest, new] if why else rest

    def _apply(self, key: ObjectKey, vm: Document, vmi: Document) -> str:
        """Change the VMI as far as KubeVirt can, and return why the VM needs a restart, or ""."""
        new = vm["spec"]["template"]["spec"]
        old = self._started.get(vmi["metadata"]["uid"], vm["spec"]["template"])["spec"]
        if self._plugs and _plugged(new) != _plugged(vmi["spec"]):
            plugged = {"volumes": new["volumes"], "domain": {"devices": {"disks": new["domain"]["devices"]["disks"]}}}
            self._api.change(VMIS, key, {"spec": plugged})
        if self.strategy == STAGE:
            return OTHER_FIELD if _fixed(old) != _fixed(new) else ""
        if _others(old) != _others(new):
            return OTHER_FIELD
        wanted, has = _sockets(new), _sockets(vmi["spec"])
        if wanted < has:
            return FEWER_SOCKETS
        change: Document = {}
        if (selector := new.get("nodeSelector")) != vmi["spec"].get("nodeSelector"):
            change["nodeSelector"] = selector
        if wanted > has and not _plugging(vmi):
            change["domain"] = {"cpu": {"sockets": wanted}}
            uid, took = vmi["metadata"]["uid"], self._chance.uniform(2, 8)
            self._after(self._chance.uniform(0.05, 0.4), self._ask_for_migration, key, uid)
            if self.strategy == LIVE_UPDATE:
                self._after(took, self._finish, key, uid, wanted)
        if change:
            self._api.change(VMIS, key, {"spec": change})
        return ""

    def _ask_for_migration(self, key: ObjectKey, uid: str) -> None:
        """KubeVirt's VMI controller sees the new spec a moment after its VM controller has written it."""
        vmi = self._api.current(VMIS, key)
        if vmi is not None and vmi["metadata"]["uid"] == uid:
            conditions = [*(vmi["status"].get("conditions") or []), {"type": "HotVCPUChange", "status": "True"}]
            self._api.change(VMIS, key, {"status": {"conditions": conditions}})

    def migrate(self, key: ObjectKey) -> None:
        """A migration was created. One of five fails."""
        phase = "Failed" if self._chance.random() < 0.2 else "Succeeded"
        self._after(self._chance.uniform(2, 8), self._end_migration, key, phase)

    def _end_migration(self, key: ObjectKey, phase: str) -> None:
        if (migration := self._api.current(MIGRATIONS, key)) is None:
            return
        vm = ObjectKey(key.namespace, migration["spec"]["vmiName"])
        if (vmi := self._api.current(VMIS, vm)) is None:
            self._api.remove(MIGRATIONS, key)
            return
        if phase == "Succeeded":
            self._finish(vm, vmi["metadata"]["uid"], _sockets(vmi["spec"]))
        self._api.change(MIGRATIONS, key, {"status": {"phase": phase}})

    def _finish(self, key: ObjectKey, uid: str, sockets: int) -> None:
        """The migration has ended."""
        vmi = self._api.current(VMIS, key)
        if vmi is not None and vmi["metadata"]["uid"] == uid:
            kept = [each for each in vmi["status"].get("conditions") or () if each["type"] != "HotVCPUChange"]
            self._api.change(VMIS, key, {"status": {"conditions": kept, "currentCPUTopology": {"sockets": sockets}}})


def _plugged(spec: Any) -> list[Any]:
    return [each for each in spec["volumes"] if (each.get("persistentVolumeClaim") or {}).get("hotpluggable")]


def _fixed(spec: Any) -> Any:
    """The spec without the volumes that can be plugged in."""
    names, devices = {each["name"] for each in _plugged(spec)}, spec["domain"]["devices"]
    volumes, disks = ([each for each in of if each["name"] not in names] for of in (spec["volumes"], devices["disks"]))
    return {**spec, "volumes": volumes, "domain": {**spec["domain"], "devices": {**devices, "disks": disks}}}


def _others(spec: Any) -> Any:
    spec = _fixed(spec)
    for path in LIVE_FIELDS:
        spec = without(spec, path)
    return spec


def _sockets(spec: Document) -> Any:
    return ((spec["domain"].get("cpu")) or {}).get("sockets", 1)


def _plugging(vmi: Document) -> bool:
    return any(each["type"] == "HotVCPUChange" for each in vmi.get("status", {}).get("conditions") or ())
