"""The objects of a large cluster, with status and metadata like those that KubeVirt 1.9 writes."""

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from benchmarks.objects import OBJECTS
from controller.kinds import REPLICA_SETS
from controller.replicaset.template import Template, parse_template

NAMESPACES = 50
NODES = 400
KUBEVIRT, POOLS = "kubevirt.io", "pool.kubevirt.io"
VMIS, REVISIONS = (KUBEVIRT, "virtualmachineinstances"), ("apps", "controllerrevisions")
MARK = re.compile(rb'"<#(\w+)>"|<(\w+)>')

Texts = dict[str, str]


class Size(Struct, frozen=True):
    """The number of the objects in the cluster. Each VM of a pool runs and has a VMI."""

    sets: int
    vmis_of_set: int
    pools: int
    vms_of_pool: int

    @property
    def set_vmis(self) -> int:
        return self.sets * self.vmis_of_set

    @property
    def vms(self) -> int:
        return self.pools * self.vms_of_pool

    @property
    def objects(self) -> int:
        """All objects: owners, VMs, and the VMIs of both kinds. The revisions of the owners are left out."""
        return self.sets + self.pools + self.set_vmis + 2 * self.vms


class Shape:
    """`count` objects of one resource that differ only in their texts. `name` is the name in `objects.yaml`."""

    def __init__(self, name: str, resource: tuple[str, str], count: int, texts: Callable[[int], Texts]) -> None:
        self.group, self.plural = resource
        self.count, self.texts = count, texts
        document = _with_managers(OBJECTS[name])
        self._format = MARK.sub(
            lambda found: b"%%(%b)b" % (found[1] or found[2]), msgspec.json.encode(document).replace(b"%", b"%%")
        )

    def render(self, number: int, version: int = 1_000_000, /, **changes: str) -> bytes:
        """Return the object with this number and this resourceVersion, as the API server sends it."""
        texts = self.texts(number) | {"version": str(version), **changes}
        return self._format % {key.encode(): text.encode() for key, text in texts.items()}


def shapes(size: Size) -> dict[str, Shape]:
    of_set, of_pool = size.vmis_of_set, size.vms_of_pool

    def sets(number: int) -> Texts:
        return _texts("fleet", number, kind=1) | {"replicas": str(of_set)}

    def pools(number: int) -> Texts:
        return _texts("pool", number, kind=3) | {"replicas": str(of_pool), "image": "v1", "generation": "1"}

    def set_revisions(number: int) -> Texts:
        found, hash_ = sets(number), template_hash(number)
        mine = {"uid": uid(10, number), "name": f"{found['group']}-{hash_}", "hash": hash_}
        return found | mine | _owned(REPLICA_SETS.kind, found["group"], found["uid"])

    def pool_revisions(number: int) -> Texts:
        found = pools(number)
        mine = {"uid": uid(9, number), "name": f"{found['group']}-1"}
        return found | mine | _owned("VirtualMachinePool", found["group"], found["uid"], f"{POOLS}/v1beta1")

    def set_vmis(number: int) -> Texts:
        found, group = _texts("fleet", number, kind=2, size=of_set), number // of_set
        mine = {"name": f"{found['group']}-{number:06d}"}
        mine |= {"label": "vmherd.dev/template-hash", "revision": f"{group:010x}"}
        return found | mine | _owned(REPLICA_SETS.kind, found["group"], uid(1, group))

    def vms(number: int) -> Texts:
        found, ordinal = _texts("pool", number, kind=4, size=of_pool), str(number % of_pool)
        mine = {"name": f"{found['group']}-{ordinal}", "ordinal": ordinal}
        mine |= {"label": "kubevirt.io/vm-pool-revision-name", "revision": f"{found['group']}-1"}
        owner_uid = uid(3, number // of_pool)
        return found | mine | _owned("VirtualMachinePool", found["group"], owner_uid, f"{POOLS}/v1beta1")

    def vm_vmis(number: int) -> Texts:
        found = vms(number)
        return found | {"uid": uid(5, number)} | _owned("VirtualMachine", found["name"], found["uid"])

    return {
        "set": Shape("set", (KUBEVIRT, REPLICA_SETS.plural), size.sets, sets),
        "pool": Shape("pool", (POOLS, "virtualmachinepools"), size.pools, pools),
        "ControllerRevision of a set": Shape("set revision", REVISIONS, size.sets, set_revisions),
        "ControllerRevision of a pool": Shape("pool revision", REVISIONS, size.pools, pool_revisions),
        "VMI of a set": Shape("vmi", VMIS, size.set_vmis, set_vmis),
        "VM of a pool": Shape("vm", (KUBEVIRT, "virtualmachines"), size.vms, vms),
        "VMI of a VM": Shape("vmi", VMIS, size.vms, vm_vmis),
    }


def uid(kind: int, number: int) -> str:
    return f"{kind:08x}-0000-4000-8000-{number:012x}"


@cache
def template_hash(number: int) -> str:
    owner = shapes(Size(1, 1, 1, 1))["set"].render(number)
    template = parse_template(REPLICA_SETS.resource().decode(owner))
    assert isinstance(template, Template)
    return template.hash


def _texts(prefix: str, number: int, *, kind: int, size: int = 1) -> Texts:
    group = number // size
    return {
        "namespace": f"team-{group % NAMESPACES}",
        "group": f"{prefix}-{group:05d}",
        "name": f"{prefix}-{group:05d}",
        "uid": uid(kind, number),
        "launcher": uid(8, number),
        "node": f"worker-{number % NODES}",
        "created": _time(number),
    }


def _owned(kind: str, name: str, uid_: str, version: str = f"{KUBEVIRT}/v1") -> Texts:
    return {"owner_version": version, "owner_kind": kind, "owner_name": name, "owner_uid": uid_}


def _time(second: int) -> str:
    return (
        f"2026-11-{second // 86400 % 28 + 1:02d}T{second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}Z"
    )


def _with_managers(document: dict[str, Any]) -> dict[str, Any]:
    """Return an object with the `managedFields` that KubeVirt's programs leave on an object with a status."""
    if "status" not in document:
        return document
    written = {"virt-controller": document["spec"], "virt-handler": document["status"]}
    managed = [
        {
            "manager": manager,
            "operation": "Update",
            "apiVersion": "kubevirt.io/v1",
            "time": "2026-11-01T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:status": _fields(content)},
        }
        for manager, content in written.items()
    ]
    return document | {"metadata": document["metadata"] | {"managedFields": managed}}


def _fields(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return {".": {}} | {f"f:{key}": _fields(item) for key, item in value.items()}
    return {}
