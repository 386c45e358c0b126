"""Sets the defaults of KubeVirt's mutating webhooks, as KubeVirt 1.9 does on amd64. All functions are pure."""

import copy
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

from controller.apimachinery.quantities import parse_quantity
from sandbox.live_update import MAX_HOTPLUG_RATIO
from sandbox.vmi_status import RUNTIME_USER
from sandbox.vmis import FINALIZER

ARCHITECTURE: Final = "amd64"
MACHINE: Final = "q35"
CPU_MODEL: Final = "host-model"
EVICTION_STRATEGY: Final = "None"
DISK_BUS: Final = "sata"
PCI_TOPOLOGY: Final = ("kubevirt.io/pci-topology-version", "v3")

MOST_VCPUS: Final = 512
LEAST_HOTPLUG_MEMORY: Final = 1 << 30
MEMORY_BLOCK: Final = 2 << 20

_PROBE: Final = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}

Fields = dict[str, Any]


def default_vm(vm: Fields, *, is_new: bool, new_uuid: Callable[[], str]) -> Fields:
    """Return the VM with KubeVirt's defaults. Only a new VM gets a firmware identity and the PCI topology version."""
    vm = _without_empty_metadata(vm)
    template = _child(vm, "spec", "template")
    spec = _child(template, "spec")
    domain = _default_machine(spec)
    if is_new:
        firmware = _child(domain, "firmware")
        for field in ("uuid", "serial"):
            _set_missing(firmware, field, new_uuid())
        _set_pci_topology(template, spec)
    _spell_quantities(spec)
    for volume in vm["spec"].get("dataVolumeTemplates") or ():
        for claim in ("pvc", "storage"):
            _spell_resources(((volume.get("spec") or {}).get(claim) or {}).get("resources") or {})
    return vm


def default_vmi(vmi: Fields, *, now: str, new_uuid: Callable[[], str]) -> Fields:
    """Return a new VMI with KubeVirt's defaults, KubeVirt's finalizer, and the status of a pending VMI."""
    vmi = _without_empty_metadata(vmi)
    meta, spec = _child(vmi, "metadata"), _child(vmi, "spec")
    _default_spec(spec, new_uuid)
    _set_pci_topology(vmi, spec)
    meta["finalizers"] = list(dict.fromkeys((*(meta.get("finalizers") or ()), FINALIZER)))
    domain, status = spec["domain"], _child(vmi, "status")
    guest = (domain.get("memory") or {}).get("guest")
    if guest is not None:
        status["memory"] = {"guestAtBoot": guest, "guestCurrent": guest, "guestRequested": guest}
    topology = {field: domain["cpu"][field] for field in ("cores", "sockets", "threads") if field in domain["cpu"]}
    status["currentCPUTopology"] = topology
    status.setdefault("guestOSInfo", {})
    status["phase"] = "Pending"
    transition = {"phase": "Pending", "phaseTransitionTimestamp": now}
    # The simulator's VM controller creates VMIs that are already pending.
    status["phaseTransitionTimestamps"] = status.get("phaseTransitionTimestamps") or [transition]
    status["runtimeUser"] = RUNTIME_USER
    return vmi


def _default_spec(spec: Fields, new_uuid: Callable[[], str]) -> None:
    domain = _default_machine(spec)
    _spell_quantities(spec)
    _default_resources(domain)
    _default_cpu(domain)
    for volume in spec.get("volumes") or ():
        if volume.get("containerDisk"):
            _set_missing(volume["containerDisk"], "imagePullPolicy", _pull_policy(volume["containerDisk"]["image"]))
    _set_missing(spec, "evictionStrategy", EVICTION_STRATEGY)
    _default_network(spec)
    _default_disks(spec)
    _set_missing(_child(domain, "features", "acpi"), "enabled", True)
    _set_missing(_child(domain, "firmware"), "uuid", new_uuid())
    for device in domain["devices"].get("inputs") or ():
        _set_missing(device, "bus", "usb")
        _set_missing(device, "type", "tablet")
    for probe in (spec.get("readinessProbe"), spec.get("livenessProbe")):
        if probe is not None:
            for field, value in _PROBE.items():
                _set_missing(probe, field, value)


def _default_resources(domain: Fields) -> None:
    """Set a missing CPU request to its limit, and a missing guest memory to the memory request or limit."""
    resources, memory = domain["resources"], _child(domain, "memory")
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    if _amount(limits.get("cpu")) and not _amount(requests.get("cpu")):
        resources["requests"] = {**requests, "cpu": limits["cpu"]}
    if memory.get("guest") is None:
        page = (memory.get("hugepages") or {}).get("pageSize")
        guest = next((size for size in (requests.get("memory"), limits.get("memory"), page) if _amount(size)), None)
        if guest is not None:
            memory["guest"] = guest
    guest_bytes = _amount(memory.get("guest"))
    hotpluggable = guest_bytes >= LEAST_HOTPLUG_MEMORY and not guest_bytes % MEMORY_BLOCK
    if "maxGuest" not in memory and hotpluggable and not domain.get("launchSecurity"):
        memory["maxGuest"] = binary(guest_bytes * MAX_HOTPLUG_RATIO)


def _default_cpu(domain: Fields) -> None:
    cpu, resources = _child(domain, "cpu"), domain["resources"]
    if not any(cpu.get(field) for field in ("cores", "sockets", "threads")):
        wanted = (resources.get("limits") or {}).get("cpu") or (resources.get("requests") or {}).get("cpu")
        cpu |= {"sockets": _amount(wanted) if wanted is not None else 1, "cores": 1, "threads": 1}
    _set_missing(cpu, "model", CPU_MODEL)
    if not cpu.get("maxSockets"):
        sockets, vcpus = cpu.get("sockets", 0), cpu.get("cores", 0) * cpu.get("threads", 0)
        most = sockets * MAX_HOTPLUG_RATIO
        cpu["maxSockets"] = max(MOST_VCPUS // vcpus, sockets) if most * vcpus > MOST_VCPUS else most


def _default_network(spec: Fields) -> None:
    devices = spec["domain"]["devices"]
    if devices.get("autoattachPodInterface") is False or spec.get("networks") or devices.get("interfaces"):
        return
    devices["interfaces"] = [{"name": "default", "bridge": {}}]
    spec["networks"] = [{"name": "default", "pod": {}}]


def _default_disks(spec: Fields) -> None:
    """Add a disk for each volume that has neither a disk nor a filesystem. A disk without a bus gets a SATA bus."""
    devices = spec["domain"]["devices"]
    disks = list(devices.get("disks") or ())
    named = {device["name"] for device in (*disks, *(devices.get("filesystems") or ()))}
    disks += [{"name": volume["name"]} for volume in spec.get("volumes") or () if volume["name"] not in named]
    for disk in disks:
        targets = [field for field in ("disk", "cdrom", "lun") if disk.get(field) is not None] or ["disk"]
        for target in targets:
            _set_missing(_child(disk, target), "bus", DISK_BUS)
    if disks:
        devices["disks"] = disks


def _pull_policy(image: str) -> str:
    return "Always" if image.endswith(":latest") or not {":", "@"} & set(image) else "IfNotPresent"


def _set_pci_topology(owner: Fields, spec: Fields) -> None:
    machine = spec["domain"]["machine"]["type"]
    if spec["architecture"] in ("amd64", "arm64") and ("q35" in machine or machine.startswith("virt")):
        meta = _child(owner, "metadata")
        meta["annotations"] = {PCI_TOPOLOGY[0]: PCI_TOPOLOGY[1], **(meta.get("annotations") or {})}


def _without_empty_metadata(document: Fields) -> Fields:
    """Return a copy without empty labels, annotations, finalizers and owners, as Go's encoder leaves them out."""
    document = copy.deepcopy(document)
    meta = _child(document, "metadata")
    for field in ("labels", "annotations", "finalizers", "ownerReferences"):
        if field in meta and not meta[field]:
            del meta[field]
    return document


def _default_machine(spec: Fields) -> Fields:
    """Set the architecture and machine type, and return the domain, with `devices` and `resources` even if empty."""
    _set_missing(spec, "architecture", ARCHITECTURE)
    domain = _child(spec, "domain")
    _child(domain, "devices")
    _child(domain, "resources")
    _set_missing(_child(domain, "machine"), "type", MACHINE)
    return domain


def _spell_quantities(spec: Fields) -> None:
    domain = spec["domain"]
    memory = domain.get("memory") or {}
    for field in ("guest", "maxGuest"):
        if memory.get(field) is not None:
            memory[field] = canonical(memory[field])
    _spell_resources(domain["resources"])


def _spell_resources(resources: Fields) -> None:
    for name in ("requests", "limits"):
        if amounts := resources.get(name):
            resources[name] = {resource: canonical(value) for resource, value in amounts.items()}


def _amount(value: Any) -> int:
    """Return the value of a quantity, rounded up to a whole number, or 0 if there is no quantity."""
    amount = parse_quantity(value) if value is not None else None
    return 0 if amount is None else -int(-amount // 1)


def _child(fields: Fields, *path: str) -> Fields:
    """Return the object at this path. If a field is missing or null, add an empty object."""
    for name in path:
        if fields.get(name) is None:
            fields[name] = {}
        fields = fields[name]
    return fields


def _set_missing(fields: Fields, name: str, value: Any) -> None:
    if not fields.get(name) and fields.get(name) is not False:
        fields[name] = value


_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL: Final = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")
_SMALLEST_DECIMAL: Final = Fraction(1, 1000**3)


def canonical(value: Any) -> Any:
    """Return the canonical form of a quantity. One with an exponent, or another value, is not changed."""
    amount = parse_quantity(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
    text = str(value)
    if amount is None or "e" in text or "E" in text.rstrip("Ei"):
        return value
    if text.endswith("i") and amount.denominator == 1:
        return binary(int(amount))
    return _written(amount / _SMALLEST_DECIMAL, 1000, _DECIMAL)


def binary(amount: int) -> str:
    return _written(Fraction(amount), 1024, _BINARY)


def _written(amount: Fraction, base: int, suffixes: tuple[str, ...]) -> str:
    """Return the amount with the largest possible suffix. The number before the suffix must be whole."""
    if not amount:
        return "0"
    position = 0
    while position + 1 < len(suffixes) and not amount % base:
        amount, position = amount / base, position + 1
    return f"{amount}{suffixes[position]}"
