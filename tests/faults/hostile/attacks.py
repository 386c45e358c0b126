"""What a user with the role `edit` in one namespace writes to hurt the others, and how it must end.

Each row is a function that writes as this user. Most rows have 20 VMs or VMIs: the controller creates them from the
template, or the user writes them with an ownerReference.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from msgspec import Struct

from sandbox.admin import Rejected
from tests.controlplane.documents import reference_to
from tests.faults.hostile.cluster import MERGE, POOL, VM, VMI, Tenant, vm_template

Attack = Callable[["Attacker"], None]
Ending = Callable[["Attacker"], object]

MANY: Final = 20
LABELS: Final = {"app": "x"}
HUGE: Final = 2**31 - 1
LAST, FIRST = "9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+14:00"
ENDS: Final = (FIRST, LAST, "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z")
"""The first and the last times of the calendar, in the west, in the east, and at zero."""


class Attacker:
    """A tenant whose writes the API server may refuse as invalid. `refusals` are its messages."""

    def __init__(self, tenant: Tenant) -> None:
        self.tenant = tenant
        self.refusals: list[str] = []

    def set(self, replicas: int = MANY, **fields: Any) -> dict[str, Any]:
        return self._try(lambda: self.tenant.make_set("set", replicas, **fields))

    def pool(self, replicas: int = MANY, **fields: Any) -> dict[str, Any]:
        return self._try(lambda: self.tenant.make_pool("pool", replicas, **fields))

    def change(self, kind: str, name: str, change: dict[str, Any]) -> None:
        """Change an object with a merge patch, as often as another writer changes it first."""
        self._try(lambda: self.tenant.patch(kind, name, change))

    def template(self, template: dict[str, Any]) -> None:
        self.change(POOL, "pool", {"spec": {"virtualMachineTemplate": template}})

    def change_text(self, kind: str, name: str, change: str) -> None:
        """Change an object with a merge patch that is given as JSON."""
        self._try(lambda: self.tenant.admin.send("PATCH", self.tenant.path(kind, name), change.encode(), MERGE))

    def annotate(self, kind: str, name: str, annotations: dict[str, Any]) -> None:
        self.change(kind, name, {"metadata": {"annotations": annotations}})

    def scale(self, kind: str, name: str, replicas: int) -> None:
        """Scale through the subresource, as `kubectl scale` does."""
        self.change(kind, f"{name}/scale", {"spec": {"replicas": replicas}})

    def wait(self, kind: str, number: int = MANY, within_s: float = 5.0) -> list[str]:
        """Wait until this number of VMs or VMIs exists, or until the time has passed. Return their names."""
        give_up = time.monotonic() + within_s
        while len(names := self.names(kind)) < number and time.monotonic() < give_up:
            time.sleep(0.1)
        return names

    def names(self, kind: str) -> list[str]:
        """The names of the objects of a kind. The objects are large, so they are not read."""
        rows = self.tenant.admin.table(f"{self.tenant.path(kind)}?includeObject=None")["rows"] or ()
        return sorted(each["cells"][0] for each in rows)

    def at_once(self, calls: Iterable[Callable[[], object]]) -> None:
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(self._try, calls))

    def machines(self, vms: Iterable[str], status: Callable[[int], dict[str, Any]]) -> None:
        """Write the VMIs of these VMs, as KubeVirt does."""
        owners = self.tenant.list(VM)

        def write(number: int, name: str) -> None:
            whole = {"labels": LABELS, "ownerReferences": [reference_to(owners[name])]}
            self.tenant.create(VMI, name, {"domain": {}}, meta=whole, status=status(number))

        self.at_once([lambda number=n, name=name: write(number, name) for n, name in enumerate(vms)])

    def _try(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Rejected as refused:
            is_absent = refused.status == 404 and self.refusals  # its create was refused
            if refused.status not in (400, 413, 422) and not is_absent:
                raise
            self.refusals.append(str(refused))
            return {}


class Row(Struct, frozen=True):
    """One row: what the user writes, and a function that returns a true value when it has ended as it must.

    The row runs with validation, as in a cluster. If `unchecked`, it runs without validation too.
    """

    name: str
    attack: Attack
    ending: Ending
    unchecked: bool


ROWS: list[Row] = []


def row(name: str, ending: Ending, *, unchecked: bool = False) -> Callable[[Attack], Attack]:
    def add(attack: Attack) -> Attack:
        ROWS.append(Row(name, attack, ending, unchecked))
        return attack

    return add


def events(attacker: Attacker) -> Iterator[tuple[str, str, str]]:
    """Yield the object, the reason and the message of each Event."""
    for each in attacker.tenant.admin.get(attacker.tenant.path("events"))["items"]:
        yield each["involvedObject"]["name"], each["reason"], each["message"]


def says(reason: str, word: str, *names: str) -> Ending:
    """Each of these objects has an Event with this reason, in one line that contains the word."""

    def ending(attacker: Attacker) -> bool:
        found = {
            name
            for name, why, text in events(attacker)
            if why == reason and word in text and len(text) <= 1024 and "\n" not in text
        }
        return found >= set(names)

    return ending


def limited(word: str, *names: str) -> Ending:
    """The API server refuses each of these objects, or they have an Event `InvalidSpec`, and no object is made from
    them. The sentence contains the word.
    """
    invalid = says("InvalidSpec", word, *names)

    def ending(attacker: Attacker) -> bool:
        refused = [text for text in attacker.refusals if word in text]
        return len(refused) >= len(names) or invalid(attacker)

    return ending


def has(kind: str, owner: str, number: int) -> Ending:
    """The status of the set or pool has at least this number of replicas, and is of the present generation."""

    def ending(attacker: Attacker) -> bool:
        item = attacker.tenant.get(kind, owner)
        status = item.get("status") or {}
        observed = status.get("observedGeneration") == item["metadata"]["generation"]
        return observed and status.get("replicas", 0) >= number

    return ending


def both(*endings: Ending) -> Ending:
    return lambda attacker: all(ending(attacker) for ending in endings)


def vm_spec(*, labels: dict[str, str] | None = None, **vmi_spec: Any) -> dict[str, Any]:
    """A template of a pool with these fields in the VMI spec."""
    template = vm_template(labels)
    template["spec"]["template"]["spec"] |= vmi_spec
    return template


def nested(depth: int, leaf: Any) -> Any:
    for _ in range(depth):
        leaf = {"a": leaf}
    return leaf


def ready(status: str | None, since: str = "", **more: Any) -> dict[str, Any]:
    return {"type": "Ready", "status": status, **({"lastTransitionTime": since} if since else {}), **more}
