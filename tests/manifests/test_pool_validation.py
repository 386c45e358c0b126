"""Validation of pools by the API server, before the controller sees them (P1, P5).

An error names the field and the valid values. Pools and sets share some rules. test_replicaset_validation.py has more
tests of these rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.cluster import DryRun, Kubectl
from tests.manifests.documents import ABSENT, pool

pytestmark = pytest.mark.cluster

TEMPLATE = "spec.virtualMachineTemplate"
LABELS = f"{TEMPLATE}.metadata.labels"
VM = f"{TEMPLATE}.spec"
VMI = f"{VM}.template.spec"
DISKS = f"{VMI}.domain.devices.disks"
EXPRESSIONS = "spec.selector.matchExpressions"
SCALE_IN = "spec.scaleInStrategy"
UPDATE = "spec.updateStrategy"
POLICY = f"{SCALE_IN}.proactive.selectionPolicy"
NODES = f"{POLICY}.selectors.nodeSelectorRequirementMatcher"
CHOSEN_LABELS = f"{POLICY}.selectors.labelSelector.matchExpressions"
HEALING = "spec.autohealing"

MISMATCH = f"selector does not match labels: {LABELS} must"
ONE_OF_VOLUMES = f"each disk must have the name of one of {VMI}.volumes, which has"
NO_AMOUNT = 'must be a number from 1, or a percentage from "1%" to "100%"'
NO_DURATION = "must be a duration such as 5m or 1m30s"
ONLY_ONE = "only one strategy can be configured at a time"
EMPTY_SELECTOR = (
    "spec.selector: Required value: must not be empty, because an empty selector would match every VM of the "
    f"namespace; set matchLabels to labels in {LABELS}"
)
NO_LABELS = (
    f"{LABELS}: Required value: must not be empty, because spec.selector selects the VMs of the pool by their labels"
)
FIXED_SELECTOR = (
    "spec.selector: Forbidden: cannot be changed, because it selects the VMs of the pool; create a new pool instead"
)


def expression(operator: str, *values: str, key: str = "app") -> dict[str, Any]:
    return {EXPRESSIONS: [requirement(operator, *values, key=key)]}


def requirement(operator: str, *values: str, key: str = "zone") -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


REFUSED: dict[str, tuple[Mapping[str, Any], str]] = {
    "no spec": ({"spec": ABSENT}, "spec: Required value"),
    "no template": ({TEMPLATE: ABSENT}, f"{TEMPLATE}: Required value"),
    "no VM spec": ({VM: ABSENT}, f"{VM}: Required value"),
    "no VMI template": ({f"{VM}.template": ABSENT}, f"{VM}.template: Required value"),
    "no VMI spec": ({VMI: ABSENT}, f"{VMI}: Required value"),
    "no domain": ({f"{VMI}.domain": ABSENT}, f"{VMI}.domain: Required value"),
    "no selector": ({"spec.selector": ABSENT}, "spec.selector: Required value"),
    "empty selector": ({"spec.selector": {}}, EMPTY_SELECTOR),
    "selector of null parts": ({"spec.selector": {"matchLabels": None, "matchExpressions": None}}, EMPTY_SELECTOR),
    "another value": (
        {"spec.selector.matchLabels": {"app": "db"}},
        f'spec.selector.matchLabels: Invalid value: {MISMATCH} have ["app=db"]',
    ),
    "labels of the VMI alone": (
        {"spec.selector.matchLabels": {"inner": "a"}, f"{VM}.template.metadata.labels": {"inner": "a"}},
        f'spec.selector.matchLabels: Invalid value: {MISMATCH} have ["inner=a"]',
    ),
    "In": (expression("In", "db"), f'{EXPRESSIONS}: Invalid value: {MISMATCH} satisfy ["app In (db)"]'),
    "NotIn": (expression("NotIn", "web"), f'{EXPRESSIONS}: Invalid value: {MISMATCH} satisfy ["app NotIn (web)"]'),
    "Exists": (expression("Exists", key="zone"), f'{EXPRESSIONS}: Invalid value: {MISMATCH} satisfy ["zone Exists"]'),
    "DoesNotExist": (
        expression("DoesNotExist"),
        f'{EXPRESSIONS}: Invalid value: {MISMATCH} satisfy ["app DoesNotExist"]',
    ),
    "In without values": (
        expression("In"),
        f"{EXPRESSIONS}[0].values: Required value: must have at least one value when operator is In or NotIn",
    ),
    "Exists with values": (
        expression("Exists", "web"),
        f"{EXPRESSIONS}[0].values: Forbidden: must be empty when operator is Exists or DoesNotExist",
    ),
    "no labels": ({LABELS: ABSENT}, NO_LABELS),
    "no metadata": ({f"{TEMPLATE}.metadata": ABSENT}, NO_LABELS),
    "a label with a space": ({LABELS: {"app": "web", "team": "a b"}}, f'{LABELS}.team: Invalid value: "a b"'),
    "a label key with a space": (
        {f"{VM}.template.metadata.labels": {"my team": "a"}},
        f'{VM}.template.metadata.labels: Invalid value: no valid label keys: ["my team"]; a key has',
    ),
    "negative replicas": ({"spec.replicas": -1}, "spec.replicas in body should be greater than or equal to 0"),
    "a disk without volume": (
        {f"{VMI}.volumes": [{"name": "data"}, {"name": "logs"}]},
        f'{DISKS}: Invalid value: no volume is named ["root"]: {ONE_OF_VOLUMES} ["data", "logs"]',
    ),
    "a disk and no volumes": (
        {f"{VMI}.volumes": ABSENT},
        f'{DISKS}: Invalid value: no volume is named ["root"]: {ONE_OF_VOLUMES} []',
    ),
    "a disk without name": (
        {DISKS: [{"disk": {}}]},
        f'{DISKS}: Invalid value: no volume is named [""]: {ONE_OF_VOLUMES} ["root"]',
    ),
    "a volume without name": ({f"{VMI}.volumes": [{"emptyDisk": {}}]}, f"{VMI}.volumes[0].name: Required value"),
    "a dataVolumeTemplate without name": (
        {f"{VM}.dataVolumeTemplates": [{"metadata": {}}]},
        f"{VM}.dataVolumeTemplates[0].metadata.name: Required value",
    ),
    "two dataVolumeTemplates of one name": (
        {f"{VM}.dataVolumeTemplates": [{"metadata": {"name": name}} for name in ("logs", "data", "data")]},
        f"{VM}.dataVolumeTemplates: Invalid value: each dataVolumeTemplate must have a name of its own, but several "
        "are named data",
    ),
    "maxUnavailable 0": ({"spec.maxUnavailable": 0}, f"spec.maxUnavailable: Invalid value: 0: {NO_AMOUNT}"),
    "maxUnavailable below 0": ({"spec.maxUnavailable": -1}, f"spec.maxUnavailable: Invalid value: -1: {NO_AMOUNT}"),
    **{
        f"maxUnavailable {text!r}": (
            {"spec.maxUnavailable": text},
            f'spec.maxUnavailable: Invalid value: "{text}": {NO_AMOUNT}',
        )
        for text in ("0%", "101%", "-5%", "5", "half", "", "1.5%", "05%", "10% ")
    },
    "maxUnavailable 1.5": ({"spec.maxUnavailable": 1.5}, "spec.maxUnavailable in body must be of type integer,string"),
    "two scale-in strategies": (
        {SCALE_IN: {"proactive": {}, "opportunistic": {}}},
        f"{SCALE_IN}: Invalid value: {ONLY_ONE}",
    ),
    "three scale-in strategies": (
        {SCALE_IN: {"proactive": {}, "opportunistic": {}, "unmanaged": {}}},
        f"{SCALE_IN}: Invalid value: {ONLY_ONE}",
    ),
    "two update strategies": ({UPDATE: {"proactive": {}, "unmanaged": {}}}, f"{UPDATE}: Invalid value: {ONLY_ONE}"),
    "an unknown strategy": ({SCALE_IN: {"eager": {}}}, f'unknown field "{SCALE_IN}.eager"'),
    "a selection policy of an opportunistic update": (
        {UPDATE: {"opportunistic": {"selectionPolicy": {}}}},
        f'unknown field "{UPDATE}.opportunistic.selectionPolicy"',
    ),
    "an unknown basePolicy": (
        {f"{POLICY}.basePolicy": "Newest"},
        f'{POLICY}.basePolicy: Unsupported value: "Newest": supported values: "DescendingOrder", "Random"',
    ),
    "an unknown sortPolicy": (
        {f"{POLICY}.sortPolicy": "Smallest"},
        f'{POLICY}.sortPolicy: Unsupported value: "Smallest": supported values: "AscendingOrder"',
    ),
    "an unknown statePreservation": (
        {f"{SCALE_IN}.opportunistic.statePreservation": "Warm"},
        f'{SCALE_IN}.opportunistic.statePreservation: Unsupported value: "Warm": supported values: "Disabled"',
    ),
    "chosen labels without values": (
        {CHOSEN_LABELS: [requirement("In")]},
        f"{CHOSEN_LABELS}[0].values: Required value: must have at least one value",
    ),
    "chosen labels greater than": (
        {CHOSEN_LABELS: [requirement("Gt", "1")]},
        f'{CHOSEN_LABELS}[0].operator: Unsupported value: "Gt"',
    ),
    "chosen nodes by an unknown operator": (
        {NODES: [requirement("Near", "1")]},
        f'{NODES}[0].operator: Unsupported value: "Near"',
    ),
    "chosen nodes without key": ({NODES: [{"operator": "Exists"}]}, f"{NODES}[0].key: Required value"),
    "chosen nodes without values": ({NODES: [requirement("NotIn")]}, f"{NODES}[0].values: Required value: must have"),
    "chosen nodes with values": ({NODES: [requirement("Exists", "a")]}, f"{NODES}[0].values: Forbidden: must be empty"),
    **{
        f"chosen nodes by {operator} {values}": (
            {NODES: [requirement(operator, *values)]},
            f"{NODES}[0].values: Invalid value: must be a single integer when operator is Gt or Lt",
        )
        for operator, values in (("Gt", ()), ("Gt", ("1", "2")), ("Lt", ("many",)), ("Lt", ("1.5",)))
    },
    "a threshold of 0": (
        {f"{HEALING}.startUpFailureThreshold": 0},
        f"{HEALING}.startUpFailureThreshold in body should be greater than or equal to 1",
    ),
    **{
        f"a duration of {text!r}": (
            {f"{HEALING}.minFailingToStartDuration": text},
            f'{HEALING}.minFailingToStartDuration: Invalid value: "{text}": {NO_DURATION}',
        )
        for text in ("5", "-5m", "5 m", "five", "", "1d", "m")
    },
    "a misspelt field": ({"spec.replica": 3}, 'unknown field "spec.replica"'),
    "an unknown generated name": (
        {"spec.nameGeneration": {"append": True}},
        'unknown field "spec.nameGeneration.append"',
    ),
}

ACCEPTED: dict[str, Mapping[str, Any]] = {
    "nothing unusual": {},
    "no replicas": {"spec.replicas": 0},
    "paused": {"spec.paused": True},
    "null for all that may be left away": {
        f"spec.{field}": None
        for field in ("paused", "nameGeneration", "scaleInStrategy", "updateStrategy", "autohealing")
    },
    "an empty CD drive": {DISKS: [{"name": "drive", "cdrom": {"bus": "sata"}}]},
    "volumes without disks": {f"{VMI}.domain": {}},
    "disks and volumes that are null": {f"{VMI}.domain": {"devices": {"disks": None}}, f"{VMI}.volumes": None},
    "as many disks as there can be": {
        DISKS: [{"name": f"disk-{number:0>58}"} for number in range(256)],
        f"{VMI}.volumes": [{"name": f"disk-{number:0>58}"} for number in range(256)],
    },
    "template metadata that is null in parts": {
        f"{TEMPLATE}.metadata.creationTimestamp": None,
        f"{TEMPLATE}.metadata.annotations": None,
        f"{VM}.template.metadata": None,
    },
    "as many dataVolumeTemplates as there can be": {
        f"{VM}.dataVolumeTemplates": [{"metadata": {"name": f"disk-{number:0>58}"}} for number in range(256)]
    },
    "disks of no VM's own": {f"{VM}.dataVolumeTemplates": None},
    "every operator": {
        EXPRESSIONS: [
            requirement("In", "db", "web", key="app"),
            requirement("NotIn", "a"),
            requirement("Exists", key="tier"),
            requirement("DoesNotExist"),
        ]
    },
    "the guide's first spelling": {
        "spec.appendPostfixToSecretReferences": True,
        "spec.appendPostfixToConfigMapReferences": False,
    },
    "the first spelling in nameGeneration": {
        "spec.nameGeneration": {"appendPostfixToSecretReferences": True, "appendPostfixToConfigMapReferences": True}
    },
    "the newer spelling": {
        "spec.nameGeneration": {"appendIndexToSecretRefs": True, "appendIndexToConfigMapRefs": None}
    },
    **{f"maxUnavailable {value!r}": {"spec.maxUnavailable": value} for value in (1, 500, "1%", "10%", "99%", "100%")},
    "no strategy": {SCALE_IN: {}, UPDATE: {}},
    "one strategy and one that is null": {SCALE_IN: {"opportunistic": {}, "proactive": None}},
    **{
        f"{strategy} strategies": {SCALE_IN: {strategy: {}}, UPDATE: {strategy: {}}}
        for strategy in ("proactive", "opportunistic", "unmanaged")
    },
    **{
        f"sorted by {sort}": {
            SCALE_IN: {"proactive": {"selectionPolicy": {"sortPolicy": sort}}},
            UPDATE: {"proactive": {"selectionPolicy": {"sortPolicy": sort}}},
        }
        for sort in ("AscendingOrder", "DescendingOrder", "Newest", "Oldest", "Random", None)
    },
    **{
        f"based on {base}": {
            SCALE_IN: {"proactive": {"selectionPolicy": {"basePolicy": base}}},
            UPDATE: {"proactive": {"selectionPolicy": {"basePolicy": base, "sortPolicy": "Oldest"}}},
        }
        for base in ("DescendingOrder", "Random")
    },
    **{
        f"preserved {kept}": {SCALE_IN: {strategy: {"statePreservation": kept}}}
        for strategy, kept in (("proactive", "Online"), ("opportunistic", "Offline"), ("proactive", "Disabled"))
    },
    "both selectors": {
        f"{POLICY}.selectors": {
            "labelSelector": {"matchLabels": {"a": "b"}},
            "nodeSelectorRequirementMatcher": [
                requirement("In", "a"),
                requirement("NotIn", "a", "b"),
                requirement("Exists"),
                requirement("DoesNotExist"),
                requirement("Gt", "5"),
                requirement("Lt", "-5"),
            ],
        }
    },
    "selectors that ask for nothing": {
        f"{POLICY}.selectors": {"labelSelector": {}, "nodeSelectorRequirementMatcher": []}
    },
    **{
        f"a duration of {text}": {f"{HEALING}.minFailingToStartDuration": text}
        for text in ("0", "5m", "1m30s", "1.5h", "500ms", "5m0s", "10µs")
    },
}


@pytest.mark.parametrize(("changes", "message"), REFUSED.values(), ids=REFUSED)
def test_an_invalid_pool_is_refused_with_the_field_and_the_valid_values(
    dry: DryRun, changes: Mapping[str, Any], message: str
) -> None:
    """P1: the API server refuses most invalid pools. The controller only reports the others."""
    assert any(message in mistake for mistake in dry.refusal(pool(changes)))


@pytest.mark.parametrize("changes", ACCEPTED.values(), ids=ACCEPTED)
def test_an_unusual_pool_is_accepted_without_a_warning(dry: DryRun, changes: Mapping[str, Any]) -> None:
    assert dry.warnings(pool(changes)) == []


DEFAULTS = {
    "spec.replicas": 1,
    "spec.maxUnavailable": "100%",
    f"{HEALING}.startUpFailureThreshold": 3,
    f"{HEALING}.minFailingToStartDuration": "5m",
}


@pytest.mark.parametrize("value", [ABSENT, None], ids=["absent", "null"])
def test_the_defaults_are_filled_in(kubectl: Kubectl, value: object) -> None:
    sent = pool(
        {HEALING: dict.fromkeys(("startUpFailureThreshold", "minFailingToStartDuration"))} | dict.fromkeys(DEFAULTS)
    )
    if value is ABSENT:
        sent = pool({"spec.replicas": ABSENT, "spec.maxUnavailable": ABSENT, HEALING: {}})
    kubectl.create(sent)
    assert kubectl.json("get", "vmpool", "web")["spec"] == pool(DEFAULTS)["spec"]


def test_no_default_is_set_for_fields_whose_absence_has_a_meaning(kubectl: Kubectl) -> None:
    """P8, P15: a pool without `sortPolicy` or `autohealing` behaves in another way than a pool with these fields. So
    the API server must not set a default.
    """
    sent = pool({SCALE_IN: {"proactive": {"selectionPolicy": {}}}, UPDATE: {"proactive": {}}})
    kubectl.create(sent)
    assert kubectl.json("get", "vmpool", "web")["spec"] == sent["spec"]


def test_a_pool_without_its_defaults_can_be_applied_again_and_again(kubectl: Kubectl) -> None:
    bare = pool({"spec.replicas": ABSENT, "spec.maxUnavailable": ABSENT, HEALING: {}})
    for expected in ("created", "unchanged"):
        assert kubectl("apply", "-f", "-", stdin=bare).stdout.strip().endswith(f"/web {expected}")
    assert kubectl("diff", "-f", "-", stdin=bare).stdout == ""
    assert kubectl.json("get", "vmpool", "web")["metadata"]["generation"] == 1


def test_a_pool_template_comes_back_as_it_was_sent(kubectl: Kubectl) -> None:
    """P4, P12: the API server keeps template fields that the schema does not know, with any value."""
    odd = {"number": 9007199254740993, "share": 1.25, "null": None, "list": [None, {"a": None}, ""]}
    sent = pool(
        {
            f"{TEMPLATE}.metadata.creationTimestamp": None,
            f"{TEMPLATE}.metadata.later": {"a": [1]},
            f"{VM}.later": odd,
            f"{VM}.dataVolumeTemplates": [{"metadata": {"name": "data", "later": odd}, "later": odd}],
            f"{VM}.template.later": odd,
            f"{VM}.template.metadata.later": odd,
            f"{VMI}.later": odd,
            f"{VMI}.domain.later": odd,
            f"{VMI}.domain.devices.later": odd,
            DISKS: [{"name": "root", "disk": None, "cdrom": {"later": odd}, "bootOrder": 1}],
            f"{VMI}.volumes": [{"name": "root", "later": odd}],
        }
    )
    kubectl.create(sent)
    assert kubectl.json("get", "vmpool", "web")["spec"] == sent["spec"]


CHANGED_SELECTORS: dict[str, Mapping[str, Any]] = {
    "to other labels": {"spec.selector.matchLabels": {"tier": "front"}},
    "by an expression": expression("Exists"),
    "with the template": {"spec.selector.matchLabels": {"app": "db"}, LABELS: {"app": "db"}},
}


@pytest.mark.parametrize("changes", CHANGED_SELECTORS.values(), ids=CHANGED_SELECTORS)
def test_the_selector_of_a_pool_cannot_be_changed(kubectl: Kubectl, changes: Mapping[str, Any]) -> None:
    kubectl("apply", "-f", "-", stdin=pool())
    answer = kubectl("apply", "-f", "-", stdin=pool(changes), check=False)
    assert answer.stderr.strip() == f'The VirtualMachinePool "web" is invalid: {FIXED_SELECTOR}'


def test_every_field_of_a_pool_except_the_selector_can_be_changed(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=pool({SCALE_IN: {"proactive": {}}}))
    changed = pool({"spec.replicas": 7, "spec.maxUnavailable": 1, SCALE_IN: {"unmanaged": {}}, f"{VMI}.domain": {}})
    kubectl("apply", "-f", "-", stdin=changed)
    assert kubectl.json("get", "vmpool", "web")["spec"] == changed["spec"]
