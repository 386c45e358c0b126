"""Validation of pools by the API server, before the controller sees them (P1, P5).

An error names the field and the valid values. The rules that pools share with sets have their tests in
test_validation.py.
"""

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
SCALE_IN = "spec.scaleInStrategy"
UPDATE = "spec.updateStrategy"
POLICY = f"{SCALE_IN}.proactive.selectionPolicy"
NODES = f"{POLICY}.selectors.nodeSelectorRequirementMatcher"
CHOSEN_LABELS = f"{POLICY}.selectors.labelSelector.matchExpressions"
HEALING = "spec.autohealing"

NO_AMOUNT = 'must be a number from 1, or a percentage from "1%" to "100%"'
NO_DURATION = "must be a duration such as 5m or 1m30s"
ONLY_ONE = "only one strategy can be configured at a time"


def requirement(operator: str, *values: str, key: str = "zone") -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


REFUSED: dict[str, tuple[Mapping[str, Any], str]] = {
    "no VM spec": ({VM: ABSENT}, f"{VM}: Required value"),
    "no VMI template": ({f"{VM}.template": ABSENT}, f"{VM}.template: Required value"),
    "labels of the VMI alone": (
        {"spec.selector.matchLabels": {"inner": "a"}, f"{VM}.template.metadata.labels": {"inner": "a"}},
        f'spec.selector.matchLabels: Invalid value: selector does not match labels: {LABELS} must have ["inner=a"]',
    ),
    "a label key of the VMI with a space": (
        {f"{VM}.template.metadata.labels": {"my team": "a"}},
        f'{VM}.template.metadata.labels: Invalid value: no valid label keys: ["my team"]; a key has',
    ),
    "a dataVolumeTemplate without name": (
        {f"{VM}.dataVolumeTemplates": [{"metadata": {}}]},
        f"{VM}.dataVolumeTemplates[0].metadata.name: Required value",
    ),
    "two dataVolumeTemplates of one name": (
        {f"{VM}.dataVolumeTemplates": [{"metadata": {"name": name}} for name in ("logs", "data", "data")]},
        f"{VM}.dataVolumeTemplates: Invalid value: each dataVolumeTemplate must have a name of its own, but several "
        "are named data",
    ),
    **{
        f"257 {name}": (
            {f"{VMI}.{place}{name}": [{"name": f"n{number}"} for number in range(257)]},
            f"{VMI}.{place}{name}: Too many: 257: must have at most 256 items",
        )
        for place, names in (
            ("", ("networks",)),
            ("domain.devices.", ("interfaces", "filesystems", "gpus", "hostDevices")),
        )
        for name in names
    },
    "an annotation key of 64 letters": (
        {f"{TEMPLATE}.metadata.annotations": {"k" * 64: ""}},
        f"{TEMPLATE}.metadata.annotations: Invalid value: each key must be the key of an annotation",
    ),
    "257 annotations": (
        {f"{TEMPLATE}.metadata.annotations": {f"k{number}": "" for number in range(257)}},
        f"{TEMPLATE}.metadata.annotations: Too many: 257: must have at most 256 items",
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
    "an unknown generated name": (
        {"spec.nameGeneration": {"append": True}},
        'unknown field "spec.nameGeneration.append"',
    ),
}

ACCEPTED: dict[str, Mapping[str, Any]] = {
    "null for all that may be left away": {
        f"spec.{field}": None
        for field in ("paused", "nameGeneration", "scaleInStrategy", "updateStrategy", "autohealing")
    },
    "VMI metadata that is null": {f"{VM}.template.metadata": None},
    "as many dataVolumeTemplates as there can be": {
        f"{VM}.dataVolumeTemplates": [{"metadata": {"name": f"disk-{number:0>58}"}} for number in range(256)]
    },
    "disks of no VM's own": {f"{VM}.dataVolumeTemplates": None},
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
    assert dry.refuses(pool(changes), message)


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
