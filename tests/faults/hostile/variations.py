"""Further rows: the same kinds of harm in other places, and other kinds of harm."""

import json
from typing import Any, Final

from tests.controlplane.documents import reference_to
from tests.faults.hostile.attacks import (
    ENDS,
    LABELS,
    MANY,
    Attacker,
    both,
    has,
    limited,
    nested,
    ready,
    row,
    says,
    vm_spec,
)
from tests.faults.hostile.cluster import BUDGETS, POOL, REVISIONS, SET, VM, VMI, Tenant, vm_template, vmi_template
from tests.faults.hostile.table import SUBSTITUTES

LEASES: Final = "leases"
ALL_OF_BOTH: Final = both(has(POOL, "pool", MANY), has(SET, "set", MANY))


@row("800 misspelt annotations on each VM and VMI, all different", ALL_OF_BOTH)
def misspelt_on_each(attacker: Attacker) -> None:
    attacker.pool()
    attacker.set()
    for kind in (VM, VMI):
        for number, name in enumerate(attacker.wait(kind)):
            wrong = {f"vmherd.dev/busy-untli-{number}-{index:04d}": "" for index in range(800)}
            attacker.annotate(kind, name, wrong)


@row("times at both ends of the calendar", ALL_OF_BOTH)
def ends_of_time(attacker: Attacker) -> None:
    limit = {"vmherd.dev/replace-unready-after-seconds": "2147483647", "vmherd.dev/rollback": "stalled"}
    attacker.pool(meta={"annotations": {**SUBSTITUTES, **limit}})
    attacker.set(meta={"annotations": limit})
    vms, vmis = attacker.wait(VM), attacker.wait(VMI)

    def status(number: int) -> dict[str, Any]:
        since, reason = ENDS[number % 4], {} if number % 8 < 4 else {"reason": "PodTerminating"}
        phases = [{"phase": "Running", "phaseTransitionTimestamp": ENDS[number // 4 % 4]}]
        found = [ready("True" if number % 3 == 0 else "False", since, **reason)]
        return {"phase": "Running", "nodeName": "n", "conditions": found, "phaseTransitionTimestamps": phases}

    attacker.machines(vms, status)
    for kind, names in ((VM, vms), (VMI, vmis)):
        for number, name in enumerate(names):
            marks = {"vmherd.dev/busy-until": ENDS[number % 4], "vmherd.dev/protect": "true"}
            state = {"status": status(number)} if kind == VMI else {}
            attacker.change(kind, name, {"metadata": {"annotations": marks}, **state})


@row(
    "notes of the controller that the user writes: long, deep, and at the ends of the calendar", has(POOL, "pool", MANY)
)
def forged_notes(attacker: Attacker) -> None:
    attacker.pool(autohealing={"startUpFailureThreshold": 1})
    vms = attacker.wait(VM)
    first = {
        "healed": json.dumps({number: ["x", 1, ENDS[number % 4]] for number in range(2_000)}),
        "unready": json.dumps({number: ["x", ENDS[number % 4]] for number in range(2_000)}),
        "partition": ",".join(["99%:1h1m1s"] * 300),
    }
    second = {
        "healed": json.dumps({number: ["x", 2**63, ENDS[0]] for number in range(1_500)}),
        "unready": None,
        "recreated": "[" * 30_000,
        "partition-step": "x 99 " * 5_000,
        "rollback": "stalled",
        "drain-seconds": "2147483647",
        "rolled-back": f"{'x' * 9_000} to {'y' * 9_000}",
        "min-ready-seconds": " " * 9_000,
        "rolling-update": " maxSurge" * 1_000,
    }
    for notes in (first, second):
        attacker.annotate(POOL, "pool", {f"vmherd.dev/{name}": text for name, text in notes.items()})
    for name in vms:
        attacker.annotate(VM, name, {"vmherd.dev/draining": f"healing until {ENDS[1][:19]}Z of {'x' * 9_000}"})


@row("40 revisions over the limits, as an earlier version of vmherd stored them", has(POOL, "pool", MANY))
def stored_revisions(attacker: Attacker) -> None:
    """The role `edit` cannot write revisions. It can write the label that says which revision a VM has."""
    pool = attacker.pool(meta={"annotations": {"vmherd.dev/partition": "100000"}})
    stored = Tenant(attacker.tenant.plane, attacker.tenant.name)
    meta = {"labels": {"vmherd.dev/pool-uid": pool["metadata"]["uid"]}, "ownerReferences": [reference_to(pool)]}
    for number in range(2 * MANY):
        requests = {format(each, "x"): f"1.{(number + each) % 9}Gi" for each in range(6_500)}
        changed = vm_spec(domain={"resources": {"requests": requests}}) if number % 4 else vm_spec(deep=nested(500, 1))
        data = {**pool["spec"], "virtualMachineTemplate": changed} if number % 5 else {"replicas": "x"}
        stored.create(REVISIONS, f"pool-{number + 10}", meta=meta, revision=2**62 + number, data=data)
    for number, name in enumerate(attacker.wait(VM)):
        labels = {"kubevirt.io/vm-pool-revision-name": f"pool-{number + 10}"}
        attacker.change(VM, name, {"metadata": {"labels": labels}})
    attacker.template(vm_spec(hostname="changed"))


@row("5 VMs with a spec of 1,500 levels, and a new template", has(POOL, "pool", MANY))
def deep_vms(attacker: Attacker) -> None:
    attacker.pool()
    deep = '{"spec":{"template":{"spec":{"deep":' + '{"a":' * 1_500 + "1" + "}" * 1_500 + "}}}}"
    for name in attacker.wait(VM)[:5]:
        attacker.change_text(VM, name, deep)
    attacker.template(vm_spec(hostname="changed"))


@row("4 VMs that the user grew to 500 KB, and a new template", has(POOL, "pool", MANY))
def large_vms(attacker: Attacker) -> None:
    attacker.pool()
    grown = {"spec": {"template": {"spec": {"domain": {"x": list(range(85_000))}}}}}
    for name in attacker.wait(VM)[:4]:
        attacker.change(VM, name, grown)
    attacker.template(vm_spec(hostname="changed"))


def refusing(number: int) -> list[dict[str, Any]]:
    """The terms of a selector with 1,900 values. Labels match only if they have the last one."""
    values = [f"v{value}" for value in range(63)]
    terms = [{"key": f"k{number}-{index}", "operator": "NotIn", "values": values} for index in range(30)]
    return [*terms, {"key": "app", "operator": "In", "values": [f"x{number}", "x"]}]


@row("40 sets with selectors of 1,900 values, and 40 changes of orphans", has(SET, "set", MANY))
def large_selectors(attacker: Attacker) -> None:
    attacker.set()
    makes = [
        lambda n=n: attacker.tenant.make_set(f"s{n}", 0, selector={"matchExpressions": refusing(n)}, paused=True)
        for n in range(40)
    ]
    attacker.at_once(makes)
    for number in range(MANY):
        attacker.tenant.create(VMI, f"orphan-{number}", {"domain": {}}, meta={"labels": {"other": "x"}})
    for round_ in range(2):
        labels = {"other": f"x{round_}", **{f"l{index}": "x" for index in range(200)}}
        for number in range(MANY):
            attacker.change(VMI, f"orphan-{number}", {"metadata": {"labels": labels}})


@row("100 sets that select the same 20 orphans", has(SET, "s0", 0))
def contested_orphans(attacker: Attacker) -> None:
    attacker.at_once([lambda n=n: attacker.tenant.make_set(f"s{n}", 0, paused=True) for n in range(100)])
    for number in range(MANY):
        attacker.tenant.create(VMI, f"orphan-{number}", {"domain": {}}, meta={"labels": LABELS})


@row("leases with the name of the controller's lease, which the user renews", has(POOL, "pool", MANY))
def foreign_leases(attacker: Attacker) -> None:
    attacker.pool()
    spec = {"holderIdentity": "other", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}
    for name in ("vmherd", "checked", "hostile"):
        attacker.tenant.create(LEASES, name, spec)
    for second in range(5):
        for name in ("vmherd", "checked", "hostile"):
            attacker.change(LEASES, name, {"spec": {"renewTime": f"2026-01-01T00:00:0{second}.000000Z"}})


@row("100 tiny sets and 100 tiny pools", both(has(SET, "s99", 0), has(POOL, "p99", 0)))
def many_owners(attacker: Attacker) -> None:
    attacker.at_once([lambda n=n: attacker.tenant.make_set(f"s{n}", 0) for n in range(100)])
    attacker.at_once([lambda n=n: attacker.tenant.make_pool(f"p{n}", 0) for n in range(100)])


@row("names of 253 letters, and names that are numbers of 18 digits", has(SET, "s" * 253, 2))
def long_names(attacker: Attacker) -> None:
    attacker.tenant.make_set(
        "s" * 253, 2, template={**vmi_template(), "metadata": {"labels": LABELS, "name": "n" * 253}}
    )
    attacker.tenant.make_pool("p" * 253, MANY)
    pool = attacker.pool(MANY, meta={"annotations": {"vmherd.dev/partition": "50%"}})
    meta = {"labels": LABELS, "ownerReferences": [reference_to(pool)]}
    for number in range(5):
        attacker.tenant.create(VM, f"pool-{10**17 + number}", vm_template()["spec"], meta=meta)


@row("256 disks for each of 20 VMs, which the pool keeps", has(POOL, "pool", MANY))
def many_disks(attacker: Attacker) -> None:
    template = vm_template(dataVolumeTemplates=[{"metadata": {"name": f"d{n}"}, "spec": {}} for n in range(256)])
    attacker.pool(virtualMachineTemplate=template, scaleInStrategy={"proactive": {"statePreservation": "Offline"}})


@row("1,500 disks for each of 20 VMs", limited("dataVolumeTemplates", "pool"), unchecked=True)
def too_many_disks(attacker: Attacker) -> None:
    disks = [{"metadata": {"name": f"d{n}"}, "spec": {}} for n in range(1_500)]
    attacker.pool(virtualMachineTemplate=vm_template(dataVolumeTemplates=disks))


@row("80 disruption budgets with large selectors", has(POOL, "pool", MANY))
def many_budgets(attacker: Attacker) -> None:
    spec = {"selector": {"matchExpressions": refusing(0)[:-1]}, "maxUnavailable": 1}
    attacker.at_once([lambda n=n: attacker.tenant.create(BUDGETS, f"b{n}", spec) for n in range(80)])
    attacker.pool(meta={"annotations": {"vmherd.dev/disruption-budget": "1"}})
    attacker.wait(VM)
    for number in range(10):
        attacker.annotate(POOL, "pool", {"vmherd.dev/progress-deadline-seconds": f"{number + 1}"})


@row("VMIs in each state, with long texts and times at the ends of the calendar", says("SuccessfulDelete", "", "set"))
def every_state(attacker: Attacker) -> None:
    marks = {"vmherd.dev/rolling-update": "maxSurge=100%,maxUnavailable=0", "vmherd.dev/drain-seconds": "1"}
    attacker.set(meta={"annotations": {**marks, "vmherd.dev/progress-deadline-seconds": "1"}})
    phases = ("Failed", "Succeeded", "Unknown", "Running", "x" * 60_000)
    for number, name in enumerate(attacker.wait(VMI)):
        status = {"phase": phases[number % 5], "reason": "r" * 60_000, "conditions": [ready("False", ENDS[number % 4])]}
        failures = {"vmherd.dev/early-failures": str(2**70), "vmherd.dev/deletion-cost": "-2147483648"}
        attacker.change(VMI, name, {"status": status, "metadata": {"annotations": failures}})
