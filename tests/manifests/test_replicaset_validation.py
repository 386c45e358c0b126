"""Validation of replica sets by the API server, before the controller sees them (R1, R13).

An error names the field and the valid values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.cluster import DryRun, Kubectl
from tests.manifests.documents import ABSENT, REPLICASETS, load, replicaset

pytestmark = pytest.mark.cluster

SPEC = "spec.template.spec"
DISKS = f"{SPEC}.domain.devices.disks"
LABELS = "spec.template.metadata.labels"
EXPRESSIONS = "spec.selector.matchExpressions"
MISMATCH = f"selector does not match labels: {LABELS} must"
ONE_OF_VOLUMES = f"each disk must have the name of one of {SPEC}.volumes, which has"
EMPTY_SELECTOR = (
    "spec.selector: Required value: must not be empty, because an empty selector would match every VMI of the "
    f"namespace; set matchLabels to labels in {LABELS}"
)
NO_LABELS = (
    f"{LABELS}: Required value: must not be empty, because spec.selector selects the VMIs of the set by their labels"
)
FIXED_SELECTOR = (
    "spec.selector: Forbidden: cannot be changed, because it selects the VMIs of the set; create a new set instead"
)


def expression(operator: str, *values: str, key: str = "app") -> dict[str, Any]:
    return {EXPRESSIONS: [{"key": key, "operator": operator, **({"values": list(values)} if values else {})}]}


REFUSED: dict[str, tuple[Mapping[str, Any], str]] = {
    "no spec": ({"spec": ABSENT}, "spec: Required value"),
    "no template": ({"spec.template": ABSENT}, "spec.template: Required value"),
    "no template spec": ({SPEC: ABSENT}, f"{SPEC}: Required value"),
    "no domain": ({f"{SPEC}.domain": ABSENT}, f"{SPEC}.domain: Required value"),
    "null domain": ({f"{SPEC}.domain": None}, f"{SPEC}.domain: Required value"),
    "no selector": ({"spec.selector": ABSENT}, "spec.selector: Required value"),
    "null selector": ({"spec.selector": None}, "spec.selector: Required value"),
    "empty selector": ({"spec.selector": {}}, EMPTY_SELECTOR),
    "selector of empty parts": ({"spec.selector": {"matchLabels": {}, "matchExpressions": []}}, EMPTY_SELECTOR),
    "selector of null parts": ({"spec.selector": {"matchLabels": None, "matchExpressions": None}}, EMPTY_SELECTOR),
    "another value": (
        {"spec.selector.matchLabels": {"app": "db"}},
        f'spec.selector.matchLabels: Invalid value: {MISMATCH} have ["app=db"]',
    ),
    "a label too many": (
        {"spec.selector.matchLabels": {"app": "web", "zone": "a"}},
        f'spec.selector.matchLabels: Invalid value: {MISMATCH} have ["zone=a"]',
    ),
    "In": (expression("In", "db", "mail"), f'{EXPRESSIONS}: Invalid value: {MISMATCH} satisfy ["app In (db, mail)"]'),
    "In without the label": (
        expression("In", "a", key="zone"),
        f'{EXPRESSIONS}: Invalid value: {MISMATCH} satisfy ["zone In (a)"]',
    ),
    "NotIn": (
        expression("NotIn", "db", "web"),
        f'{EXPRESSIONS}: Invalid value: {MISMATCH} satisfy ["app NotIn (db, web)"]',
    ),
    "Exists": (expression("Exists", key="zone"), f'{EXPRESSIONS}: Invalid value: {MISMATCH} satisfy ["zone Exists"]'),
    "DoesNotExist": (
        expression("DoesNotExist"),
        f'{EXPRESSIONS}: Invalid value: {MISMATCH} satisfy ["app DoesNotExist"]',
    ),
    "unknown operator": (
        expression("Gt", "1"),
        f'{EXPRESSIONS}[0].operator: Unsupported value: "Gt": supported values: "In", "NotIn", "Exists"',
    ),
    "no operator": ({EXPRESSIONS: [{"key": "app"}]}, f"{EXPRESSIONS}[0].operator: Required value"),
    "no key": ({EXPRESSIONS: [{"operator": "Exists"}]}, f"{EXPRESSIONS}[0].key: Required value"),
    "no label key": (expression("Exists", key="not a key"), f'{EXPRESSIONS}[0].key: Invalid value: "not a key"'),
    "In without values": (
        expression("In"),
        f"{EXPRESSIONS}[0].values: Required value: must have at least one value when operator is In or NotIn",
    ),
    "NotIn without values": (
        {EXPRESSIONS: [{"key": "app", "operator": "NotIn", "values": []}]},
        f"{EXPRESSIONS}[0].values: Required value: must have at least one value when operator is In or NotIn",
    ),
    "Exists with values": (
        expression("Exists", "web"),
        f"{EXPRESSIONS}[0].values: Forbidden: must be empty when operator is Exists or DoesNotExist",
    ),
    "no labels": ({LABELS: ABSENT}, NO_LABELS),
    "null labels": ({LABELS: None}, NO_LABELS),
    "empty labels": ({LABELS: {}}, NO_LABELS),
    "no metadata": ({"spec.template.metadata": ABSENT}, NO_LABELS),
    "no labels for a selector that asks for none": (
        {"spec.selector": {"matchExpressions": [{"key": "old", "operator": "DoesNotExist"}]}, LABELS: {}},
        NO_LABELS,
    ),
    "a label that is no string": (
        {LABELS: {"app": "web", "port": 80}},
        f'{LABELS}.port: Invalid value: "integer": {LABELS}.port in body must be of type string',
    ),
    "a label with a space": ({LABELS: {"app": "web", "team": "a b"}}, f'{LABELS}.team: Invalid value: "a b"'),
    "a label key with a space": (
        {LABELS: {"app": "web", "my team": "a"}},
        f'{LABELS}: Invalid value: no valid label keys: ["my team"]; a key has at most 63 letters',
    ),
    "an annotation that is no string": (
        {"spec.template.metadata.annotations": {"cost": 5}},
        "spec.template.metadata.annotations.cost in body must be of type string",
    ),
    "negative replicas": (
        {"spec.replicas": -1},
        "spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal to 0",
    ),
    "replicas in quotes": (
        {"spec.replicas": "3"},
        'spec.replicas: Invalid value: "string": spec.replicas in body must be of type integer',
    ),
    "half a replica": ({"spec.replicas": 1.5}, "spec.replicas in body must be of type int32"),
    "more replicas than fit": (
        {"spec.replicas": 3_000_000_000},
        "spec.replicas: Invalid value: 3000000000: should be less than or equal to 2147483647",
    ),
    "a disk without volume": (
        {f"{SPEC}.volumes": [{"name": "data"}, {"name": "logs"}]},
        f'{DISKS}: Invalid value: no volume is named ["root"]: {ONE_OF_VOLUMES} ["data", "logs"]',
    ),
    "a disk and no volumes": (
        {f"{SPEC}.volumes": ABSENT},
        f'{DISKS}: Invalid value: no volume is named ["root"]: {ONE_OF_VOLUMES} []',
    ),
    "an old disk without volume": (
        {DISKS: [{"name": "root", "volumeName": "data", "disk": None}]},
        f'{DISKS}: Invalid value: no volume is named ["data"]: {ONE_OF_VOLUMES} ["root"]',
    ),
    "a disk without name": (
        {DISKS: [{"disk": {}}]},
        f'{DISKS}: Invalid value: no volume is named [""]: {ONE_OF_VOLUMES} ["root"]',
    ),
    "a volume without name": ({f"{SPEC}.volumes": [{"emptyDisk": {}}]}, f"{SPEC}.volumes[0].name: Required value"),
    "a misspelt field": ({"spec.replica": 3}, 'unknown field "spec.replica"'),
}

ACCEPTED: dict[str, Mapping[str, Any]] = {
    "nothing unusual": {},
    "no replicas": {"spec.replicas": 0},
    "paused": {"spec.paused": True},
    "paused that is null": {"spec.paused": None},
    "a volume named by volumeName": {DISKS: [{"name": "x", "volumeName": "root", "disk": None}]},
    "a volumeName that is null": {DISKS: [{"name": "root", "volumeName": None}]},
    "a volumeName that is empty": {DISKS: [{"name": "root", "volumeName": ""}]},
    "a volume named by volumeName alone": {DISKS: [{"volumeName": "root"}]},
    "a registryDisk": {f"{SPEC}.volumes": [{"name": "root", "registryDisk": {"image": "cirros"}}]},
    "a disk that is null": {DISKS: [{"name": "root", "disk": None}]},
    "an empty CD drive": {DISKS: [{"name": "drive", "cdrom": {"bus": "sata"}}]},
    "volumes without disks": {f"{SPEC}.domain": {}},
    "devices that are null": {f"{SPEC}.domain": {"devices": None}},
    "disks and volumes that are null": {f"{SPEC}.domain": {"devices": {"disks": None}}, f"{SPEC}.volumes": None},
    "neither disks nor volumes": {f"{SPEC}.domain": {"devices": {}}, f"{SPEC}.volumes": ABSENT},
    "as many disks as there can be": {
        DISKS: [{"name": f"disk-{number:0>58}"} for number in range(256)],
        f"{SPEC}.volumes": [{"name": f"disk-{number:0>58}"} for number in range(256)],
    },
    "template metadata that is null in parts": {
        "spec.template.metadata.creationTimestamp": None,
        "spec.template.metadata.annotations": None,
        "spec.template.metadata.name": None,
        "spec.template.metadata.generateName": None,
    },
    "a selector that is null in part": {"spec.selector.matchExpressions": None},
    "every operator": {
        EXPRESSIONS: [
            {"key": "app", "operator": "In", "values": ["db", "web"]},
            {"key": "app", "operator": "NotIn", "values": ["db"]},
            {"key": "zone", "operator": "NotIn", "values": ["a"]},
            {"key": "tier", "operator": "Exists"},
            {"key": "zone", "operator": "DoesNotExist", "values": []},
        ]
    },
    "a selector of expressions alone": {
        "spec.selector": {"matchExpressions": [{"key": "app", "operator": "Exists", "values": None}]}
    },
    "a label key with a prefix": {
        LABELS: {"app": "web", "kubevirt.io/domain": "a_b.C-1", "empty": ""},
        "spec.selector.matchLabels": {"kubevirt.io/domain": "a_b.C-1"},
    },
    "a status as old clients print it": {"status": {"conditions": None}},
    "a status that is null": {"status": None},
    "a creation time that is null": {"metadata.creationTimestamp": None},
}


@pytest.mark.parametrize(("changes", "message"), REFUSED.values(), ids=REFUSED)
def test_an_invalid_set_is_refused_with_the_field_and_the_valid_values(
    dry: DryRun, changes: Mapping[str, Any], message: str
) -> None:
    """R1: the API server refuses most invalid sets. The controller only reports the others."""
    assert any(message in mistake for mistake in dry.refusal(replicaset(changes)))


@pytest.mark.parametrize("changes", ACCEPTED.values(), ids=ACCEPTED)
def test_an_unusual_set_is_accepted_without_a_warning(dry: DryRun, changes: Mapping[str, Any]) -> None:
    """R13: the API server accepts old fields and fields that are null."""
    assert dry.warnings(replicaset(changes)) == []


def test_a_mistake_is_reported_once(dry: DryRun) -> None:
    bad = replicaset({"spec.selector.matchLabels": {"app": "db"}})
    assert len(dry.refusal(bad)) == 1


@pytest.mark.parametrize("replicas", [ABSENT, None], ids=["absent", "null"])
def test_replicas_default_to_one(kubectl: Kubectl, replicas: object) -> None:
    kubectl.create(replicaset({"spec.replicas": replicas}))
    assert kubectl.json("get", "vmirs", "web")["spec"]["replicas"] == 1


def test_a_template_comes_back_as_it_was_sent(kubectl: Kubectl) -> None:
    """The API server keeps template fields that the schema does not know."""
    sent = replicaset(
        {
            "spec.template.metadata.creationTimestamp": None,
            "spec.template.metadata.namespace": "elsewhere",
            "spec.template.metadata.later": {"a": [1]},
            f"{SPEC}.later": {"number": 9007199254740993, "share": 1.25, "null": None, "list": [None, {"a": None}, ""]},
            f"{SPEC}.domain.later": [[], {}],
            f"{SPEC}.domain.devices.later": False,
            f"{SPEC}.volumes": [{"name": "root", "later": {"deep": {"deeper": "☃"}}}],
            DISKS: [{"name": "root", "disk": None, "cdrom": {"later": 1}, "bootOrder": 1}],
        }
    )
    kubectl.create(sent)
    assert kubectl.json("get", "vmirs", "web")["spec"]["template"] == sent["spec"]["template"]


CHANGED_SELECTORS: dict[str, Mapping[str, Any]] = {
    "to other labels": {"spec.selector.matchLabels": {"tier": "front"}},
    "to more labels": {"spec.selector.matchLabels": {"app": "web", "tier": "front"}},
    "by an expression": expression("Exists"),
    "with the template": {"spec.selector.matchLabels": {"app": "db"}, LABELS: {"app": "db"}},
}


@pytest.mark.parametrize("changes", CHANGED_SELECTORS.values(), ids=CHANGED_SELECTORS)
def test_a_selector_cannot_be_changed(kubectl: Kubectl, changes: Mapping[str, Any]) -> None:
    kubectl("apply", "-f", "-", stdin=replicaset())
    answer = kubectl("apply", "-f", "-", stdin=replicaset(changes), check=False)
    assert answer.stderr.strip() == (f'The VirtualMachineInstanceReplicaSet "web" is invalid: {FIXED_SELECTOR}')


def test_every_field_except_the_selector_can_be_changed(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=replicaset())
    changed = replicaset({"spec.replicas": 7, "spec.paused": True, LABELS: {"app": "web"}, f"{SPEC}.domain": {}})
    kubectl("apply", "-f", "-", stdin=changed)
    assert kubectl.json("get", "vmirs", "web")["spec"] == changed["spec"]


GROUP = "older.vmherd.dev"
OLDER_THAN_ITS_RULES: dict[str, Mapping[str, Any]] = {
    "empty selector": {"spec.selector": {}},
    "selector of other labels": {"spec.selector.matchLabels": {"app": "db"}},
    "no labels": {LABELS: ABSENT},
    "no selector": {"spec.selector": ABSENT},
    "no template": {"spec.template": ABSENT},
    "no domain": {f"{SPEC}.domain": ABSENT},
    "volume without name": {f"{SPEC}.volumes": [{"emptyDisk": {}}]},
    "disk without volume": {f"{SPEC}.volumes": []},
}
FLAWED_AS_A_WHOLE = {"selector of other labels", "no labels", "no selector", "no template"}


@pytest.fixture
def older(kubectl: Kubectl) -> Iterator[Kubectl]:
    """Store the sets of OLDER_THAN_ITS_RULES while the definition has no validation rules. Then add the rules."""
    definition = load(REPLICASETS)
    definition["metadata"]["name"] = f"virtualmachineinstancereplicasets.{GROUP}"
    definition["spec"] |= {"group": GROUP, "names": definition["spec"]["names"] | {"shortNames": [], "categories": []}}
    definition["spec"]["versions"] = definition["spec"]["versions"][:1]
    [version] = definition["spec"]["versions"]
    rules = version["schema"]
    version["schema"] = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    crd = ("crd", definition["metadata"]["name"])
    kubectl.create(definition)
    try:
        kubectl("wait", "--for=condition=Established", *crd)
        for name, changes in OLDER_THAN_ITS_RULES.items():
            document = replicaset({**changes, "apiVersion": f"{GROUP}/v1", "metadata.name": name.replace(" ", "-")})
            kubectl("create", "--validate=ignore", "-f", "-", stdin=document)
        version["schema"] = rules
        kubectl("replace", "-f", "-", stdin=definition)
        kubectl("wait", "--for=condition=Established", *crd)
        wait_for_rules(kubectl)
        yield kubectl
    finally:
        kubectl("delete", *crd, "--wait=false")


def wait_for_rules(kubectl: Kubectl) -> None:
    """Wait until the rules are in force. The API server uses a changed definition after a short delay."""
    probe = replicaset({"apiVersion": f"{GROUP}/v1", "spec.selector": {}})
    for _ in range(50):
        if kubectl("create", "--dry-run=server", "-f", "-", stdin=probe, check=False).returncode:
            return
    pytest.fail("the definition's rules do not hold")


def test_a_set_that_is_older_than_the_rules_can_be_labelled_reported_and_deleted(older: Kubectl) -> None:
    """R1, R11: the controller reports a stored invalid set, and can write its status."""
    for name in OLDER_THAN_ITS_RULES:
        target = (f"virtualmachineinstancereplicasets.{GROUP}", name.replace(" ", "-"))
        older("label", *target, "seen=true")
        older("patch", *target, "--subresource=status", "--type=merge", "-p", '{"status": {"observedGeneration": 1}}')
        scaled = older("scale", *target, "--replicas=0", check=False)
        assert (scaled.returncode != 0) == (name in FLAWED_AS_A_WHOLE), scaled.stderr
        older("delete", *target)
