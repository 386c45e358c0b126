"""Hostile specs, stored without validation: never a crash, never a hot loop, one clear Event, and recovery."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from sandbox.admin import Rejected
from tests.controlplane.waits import eventually
from tests.faults.hostile.attacks import LABELS, nested
from tests.faults.hostile.cluster import KINDS, POOL, SET, VM, VMI, HostileCluster, Tenant, vm_template, vmi_template

pytestmark = pytest.mark.cluster

JSON = "application/json"
INT32, INT64 = 2**31 - 1, 2**63 - 1
MANY = {f"label-{number}": f"value-{number}" for number in range(3_000)}


def expressions(number: int) -> list[dict[str, Any]]:
    return [term(f"key-{index}", "NotIn", "y") for index in range(number)]


def term(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def selected(*terms: dict[str, Any], **labels: str) -> dict[str, Any]:
    return {"matchLabels": labels or None, "matchExpressions": list(terms)}


SELECTORS: dict[str, tuple[Any, str]] = {
    "in": (selected(term("app", "In", "x", "y")), ""),
    "not-in": (selected(term("app", "NotIn", "y")), ""),
    "exists": (selected(term("app", "Exists")), ""),
    "does-not-exist": (selected(term("other", "DoesNotExist")), ""),
    "empty": ({}, "InvalidSpec"),
    "null-lists": ({"matchLabels": None, "matchExpressions": None}, "InvalidSpec"),
    "contradictory": (selected(term("app", "DoesNotExist"), app="x"), "InvalidSpec"),
    "in-and-not-in": (selected(term("app", "In", "x"), term("app", "NotIn", "x")), "InvalidSpec"),
    "unknown-operator": (selected(term("app", "Gt", "1")), "InvalidSpec"),
    "hundreds-of-terms": (selected(*expressions(600), app="x"), ""),
    "thousands-of-terms": (selected(*expressions(5_000), app="x"), "InvalidSpec"),
    "unicode-value": ({"matchLabels": {"app": "ünïcødé"}}, "InvalidSpec"),
}


def annotated(annotations: dict[str, str]) -> dict[str, Any]:
    return {**vmi_template(), "metadata": {"labels": LABELS, "annotations": annotations}}


def devices(kind: str, number: int) -> dict[str, Any]:
    return vmi_template(domain={"devices": {kind: [{"name": f"n{each}"} for each in range(number)]}})


TEMPLATES: dict[str, tuple[Any, str]] = {
    "thousands-of-labels": (vmi_template({**LABELS, **MANY}), ""),
    "many-annotations": ({**vmi_template(), "metadata": {"labels": LABELS, "annotations": {"a": "é" * 100_000}}}, ""),
    "unicode": ({**vmi_template(note="ünïcødé \u202e \U0001f600 \x00".replace("\x00", ""))}, ""),
    "many-small-values": (vmi_template(values=[{"a": 1}] * 120_000), "InvalidSpec"),
    "one-large-value": (vmi_template(text="x" * 1_200_000), "InvalidSpec"),
    "large-numbers": (vmi_template(number=10**300, small=-(10**40), fraction=1e-300), ""),
    "bad-labels": (vmi_template({**LABELS, "bad key!": "x"}), "InvalidSpec"),
    "bad-label-value": (vmi_template({**LABELS, "key": "bad value!"}), "FailedCreate"),
    "long-annotation-key": (annotated({"k" * 16_000: ""}), "InvalidSpec"),
    "large-annotations": (annotated({"a": "x" * 300_000}), "InvalidSpec"),
    "deep": (vmi_template(deep=nested(190, {})), "InvalidSpec"),
    "many-gpus": (devices("gpus", 4_000), "InvalidSpec"),
    "many-interfaces": (devices("interfaces", 257), "InvalidSpec"),
    "most-interfaces": (devices("interfaces", 256), ""),
    "many-values": (vmi_template(values=[0] * 11_000), "InvalidSpec"),
    "many-quantities": (
        vmi_template(domain={"resources": {"requests": {f"r{number}": "1Gi" for number in range(6_500)}}}),
        "InvalidSpec",
    ),
    "spec-is-a-text": ({"metadata": {"labels": LABELS}, "spec": "text"}, "InvalidSpec"),
    "no-metadata": ({"spec": {"domain": {}}}, "InvalidSpec"),
}


def test_every_form_of_selector_and_template_works_or_has_one_event_and_recovers(
    hostile: HostileCluster, tenant: Tenant
) -> None:
    expected: dict[str, str] = {}
    for name, (selector, reason) in SELECTORS.items():
        expected |= {f"s-{name}": reason, f"p-{name}": reason}
        own = {"app": "x", "own": name}
        tenant.make_set(f"s-{name}", selector=selector, template=vmi_template(own), paused=True)
        tenant.make_pool(f"p-{name}", selector=selector, virtualMachineTemplate=vm_template(own))
    for name, (template, reason) in TEMPLATES.items():
        expected[f"t-{name}"] = reason
        tenant.make_set(f"t-{name}", template=template, selector={"matchLabels": {"app": "x"}})

    def is_right(name: str, reason: str) -> bool:
        if reason:
            return bool(tenant.reasons().get(name, {}).get(reason))
        if name.startswith("s-"):
            return tenant.get(SET, name).get("status", {}).get("observedGeneration") == 1
        return len(tenant.children(name)) == 1

    eventually(lambda: [name for name, reason in expected.items() if not is_right(name, reason)] == [], within_s=60)
    once = {name: tenant.reasons()[name] for name, reason in expected.items() if reason == "InvalidSpec"}
    assert {name for name, counted in once.items() if counted["InvalidSpec"] != 1} == set()
    hostile.serve_the_neighbour()
    hostile.rests(tenant)
    mended = [name for name, reason in expected.items() if reason and not name.startswith("s-")]
    sound = {"replicas": 1, "selector": {"matchLabels": LABELS}}
    for name in mended:
        if name.startswith("p-"):
            tenant.replace_spec(POOL, name, sound | {"virtualMachineTemplate": vm_template()})
        else:
            tenant.replace_spec(SET, name, sound | {"template": vmi_template()})
    eventually(lambda: [name for name in mended if len(tenant.children(name)) != 1] == [], what="they recover")


def test_p1_a_pool_that_becomes_invalid_keeps_its_vms_and_releases_those_that_its_user_deletes(
    hostile: HostileCluster, tenant: Tenant
) -> None:
    tenant.make_pool("pool", 3, scaleInStrategy={"proactive": {"statePreservation": "Offline"}})
    eventually(lambda: len(tenant.children("pool")) == 3)
    tenant.patch(POOL, "pool", {"spec": {"selector": {"matchLabels": {"app": "other"}}, "replicas": 1}})
    eventually(lambda: tenant.reasons().get("pool", {}).get("InvalidSpec"))
    tenant.delete(VM, "pool-1")
    eventually(lambda: "pool-1" not in tenant.list(VM), what="the VM loses the finalizer of the pool")
    hostile.rests(tenant)
    assert set(tenant.children("pool")) == {"pool-0", "pool-2"}
    tenant.delete(POOL, "pool")
    eventually(lambda: "pool" not in tenant.list(POOL), what="an invalid pool can be deleted")


RICH_SET: dict[str, Any] = {
    "replicas": 1,
    "paused": False,
    "selector": {"matchLabels": LABELS, "matchExpressions": [term("app", "In", "x")]},
    "template": {
        "metadata": {"name": "n", "generateName": "g", "labels": LABELS, "annotations": {"a": "b"}, "finalizers": []},
        "spec": {"domain": {"devices": {"disks": [{"name": "d", "disk": {}}]}}, "volumes": [{"name": "d"}]},
    },
}
SELECTION = {
    "sortPolicy": "Oldest",
    "selectors": {
        "labelSelector": {"matchLabels": LABELS},
        "nodeSelectorRequirementMatcher": [term("zone", "In", "a")],
    },
}
RICH_POOL: dict[str, Any] = {
    "replicas": 1,
    "paused": False,
    "selector": RICH_SET["selector"],
    "virtualMachineTemplate": {
        "metadata": {"name": "n", "labels": LABELS, "annotations": {"a": "b"}},
        "spec": {
            "runStrategy": "Always",
            "dataVolumeTemplates": [{"metadata": {"name": "d"}, "spec": {"pvc": {"resources": {}}}}],
            "template": {"metadata": {"labels": LABELS}, "spec": {"domain": {}, "volumes": [{"name": "d"}]}},
        },
    },
    "nameGeneration": {"appendIndexToConfigMapRefs": True, "appendIndexToSecretRefs": True},
    "maxUnavailable": "50%",
    "scaleInStrategy": {"proactive": {"selectionPolicy": SELECTION, "statePreservation": "Offline"}},
    "updateStrategy": {"proactive": {"selectionPolicy": SELECTION}},
    "autohealing": {"startUpFailureThreshold": 3, "minFailingToStartDuration": "5m"},
}


def with_nulls(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """For each path below the value, yield the path and a copy of the whole value with null at this path."""
    items = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    for key, inner in items:
        changed = copy.copy(value)
        changed[key] = None
        yield (*path, key), changed
        for inner_path, inner_changed in with_nulls(inner, (*path, key)):
            changed = copy.copy(value)
            changed[key] = inner_changed
            yield inner_path, changed


def test_a_null_in_any_place_of_a_spec_crashes_nothing(hostile: HostileCluster, tenant: Tenant) -> None:
    names = []
    refused = set()
    for kind, rich in ((SET, RICH_SET), (POOL, RICH_POOL)):
        for number, (path, spec) in enumerate(with_nulls(rich)):
            names.append(f"{kind[-5:]}-{number}")
            try:
                tenant.create(kind, names[-1], spec, meta={"annotations": {"null": "/".join(map(str, path))}})
            except Rejected:
                refused.add(path)
                names.pop()
    assert refused == {("replicas",)}, "the scale subresource needs a number"
    assert len(names) > 70

    def is_clear(name: str, items: dict[str, dict[str, Any]]) -> bool:
        """The controller has reported what it does with the object."""
        status = items[name].get("status") or {}
        return "observedGeneration" in status or name in reported or name in undecodable

    reported, undecodable = set[str](), set[str]()

    def unclear() -> list[str]:
        reported.update(tenant.reasons())
        undecodable.update(line["name"] for line in hostile.program.lines(msg="object cannot be decoded, skipped"))
        items = {**tenant.list(SET), **tenant.list(POOL)}
        return [f"{name} {items[name]['metadata']['annotations']}" for name in names if not is_clear(name, items)]

    eventually(lambda: unclear() == [], within_s=60)
    hostile.serve_the_neighbour()
    hostile.rests(tenant)


def test_integers_at_their_limits_are_limited_and_reported(hostile: HostileCluster, tenant: Tenant) -> None:
    for make in (tenant.make_set, tenant.make_pool):
        for number in (INT64, INT32 + 1, -1, 1.5):
            with pytest.raises(Rejected, match=r"spec\.replicas"):
                make("refused", number)
    tenant.make_set("int32", INT32, paused=True)
    steps = {"annotations": {"vmherd.dev/partition": "90%,50%,0"}}
    tenant.make_pool("int32-pool", INT32, paused=True, meta=steps)
    annotations = {
        "vmherd.dev/rolling-update": f"maxUnavailable={INT64}",
        "vmherd.dev/progress-deadline-seconds": str(INT64),
        "vmherd.dev/replace-unready-after-seconds": "9" * 400,
    }
    tenant.make_set("annotated", 1, meta={"annotations": annotations})
    pool_annotations = {
        "vmherd.dev/min-ready-seconds": str(INT32),
        "vmherd.dev/partition": str(INT64),
        "vmherd.dev/max-unhealthy": "9" * 400 + "%",
        "vmherd.dev/healed": "[" * 5000,
        "vmherd.dev/unready": '{"0": null}',
    }
    healing = {"startUpFailureThreshold": INT64, "minFailingToStartDuration": "999999999h"}
    tenant.make_pool("annotated-pool", 1, meta={"annotations": pool_annotations}, autohealing=healing)
    eventually(lambda: len(tenant.children("annotated")) == 1)
    name = "annotated-pool"
    eventually(lambda: len(tenant.children(name)) == 1 or "InvalidSpec" in tenant.reasons().get(name, {}))
    eventually(lambda: tenant.get(POOL, "int32-pool").get("status", {}).get("observedGeneration") == 1)
    hostile.serve_the_neighbour()
    hostile.rests(tenant)


def is_decodable(text: str) -> bool:
    """Python 3.14 limits the depth by the size of the stack, earlier versions by a number."""
    try:
        msgspec.json.decode(text)
    except RecursionError:
        return False
    return True


def test_deeply_nested_objects_hide_no_other_object(hostile: HostileCluster, tenant: Tenant) -> None:
    deep = '{"a":' * 1_500 + "1" + "}" * 1_500
    herd = {"replicas": 1, "selector": {"matchLabels": LABELS}, "template": {"metadata": {"labels": LABELS}, "spec": 0}}
    for kind, spec in ((SET, herd), (VMI, 0)):
        version = "hostile.vmherd.dev/v1" if kind == SET else "kubevirt.io/v1"
        # No selector matches these labels. A set adopts a VMI that matches, and may delete it as one too many.
        meta = {"name": "deep", "labels": {"app": "deep"}}
        body = json.dumps({"apiVersion": version, "kind": KINDS[kind], "metadata": meta, "spec": spec})
        tenant.admin.send("POST", tenant.path(kind), body.replace('"spec": 0', f'"spec": {deep}').encode(), JSON)
    tenant.make_set("sound", 2)
    eventually(lambda: len(tenant.children("sound")) == 2)
    skipped = hostile.program.lines(msg="object cannot be decoded, skipped", namespace=tenant.name, name="deep")
    assert {line["why"] for line in skipped} == (set() if is_decodable(deep) else {"the object is nested too deeply"})
    tenant.delete(VMI, "deep")
    tenant.delete(SET, "deep")
    hostile.serve_the_neighbour()
