"""Validation of pools by the API server, before the controller sees them (P1, P5).

An error names the field and the valid values. The rules that pools share with sets have their tests in
test_validation.py.
"""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.cluster import DryRun, Kubectl
from tests.manifests.documents import ABSENT, POOL, wrong

pytestmark = pytest.mark.cluster

TEMPLATE = "spec.virtualMachineTemplate"
LABELS = f"{TEMPLATE}.metadata.labels"
ANNOTATIONS = f"{TEMPLATE}.metadata.annotations"
VM = f"{TEMPLATE}.spec"
VMI = f"{VM}.template.spec"
MOST = "spec.maxUnavailable"
SCALE_IN = "spec.scaleInStrategy"
UPDATE = "spec.updateStrategy"
POLICY = f"{SCALE_IN}.proactive.selectionPolicy"
NODES = f"{POLICY}.selectors.nodeSelectorRequirementMatcher"
CHOSEN_LABELS = f"{POLICY}.selectors.labelSelector.matchExpressions"
HEALING = "spec.autohealing"

NO_AMOUNT = 'must be a number from 1, or a percentage from "1%" to "100%"'
NO_DURATION = "must be a duration such as 5m or 1m30s"
ONLY_ONE = "only one strategy can be configured at a time"
TOO_MANY = "Too many: 257: must have at most 256 items"
NO_INTEGER = "values: Invalid value: must be a single integer when operator is Gt or Lt"


def requirement(operator: str, *values: str, key: str = "zone") -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


REFUSED: dict[str, tuple[Mapping[str, Any], str]] = {
    "no VM spec": wrong(VM, ABSENT, "Required value"),
    "no VMI template": wrong(f"{VM}.template", ABSENT, "Required value"),
    "labels of the VMI alone": (
        {"spec.selector.matchLabels": {"inner": "a"}, f"{VM}.template.metadata.labels": {"inner": "a"}},
        f'spec.selector.matchLabels: Invalid value: selector does not match labels: {LABELS} must have ["inner=a"]',
    ),
    "a label key of the VMI with a space": wrong(
        f"{VM}.template.metadata.labels", {"my team": "a"}, 'Invalid value: no valid label keys: ["my team"]; a key has'
    ),
    "a dataVolumeTemplate without name": (
        {f"{VM}.dataVolumeTemplates": [{"metadata": {}}]},
        f"{VM}.dataVolumeTemplates[0].metadata.name: Required value",
    ),
    "two dataVolumeTemplates of one name": wrong(
        f"{VM}.dataVolumeTemplates",
        [{"metadata": {"name": name}} for name in ("logs", "data", "data")],
        "Invalid value: each dataVolumeTemplate must have a name of its own, but several are named data",
    ),
    **{
        f"257 {name}": wrong(f"{VMI}.{name}", [{"name": f"n{number}"} for number in range(257)], TOO_MANY)
        for name in (
            "networks",
            *(f"domain.devices.{each}" for each in ("interfaces", "filesystems", "gpus", "hostDevices")),
        )
    },
    "an annotation key of 64 letters": wrong(
        ANNOTATIONS, {"k" * 64: ""}, "Invalid value: each key must be the key of an annotation"
    ),
    "257 annotations": wrong(ANNOTATIONS, {f"k{number}": "" for number in range(257)}, TOO_MANY),
    **{
        f"maxUnavailable {value!r}": wrong(
            "spec.maxUnavailable", value, f"Invalid value: {json.dumps(value)}: {NO_AMOUNT}"
        )
        for value in (0, -1, "0%", "101%", "-5%", "5", "half", "", "1.5%", "05%", "10% ")
    },
    "maxUnavailable 1.5": ({"spec.maxUnavailable": 1.5}, "spec.maxUnavailable in body must be of type integer,string"),
    **{
        f"{len(names)} strategies of {path}": wrong(path, {name: {} for name in names}, f"Invalid value: {ONLY_ONE}")
        for path, names in (
            (SCALE_IN, ("proactive", "opportunistic")),
            (SCALE_IN, ("proactive", "opportunistic", "unmanaged")),
            (UPDATE, ("proactive", "unmanaged")),
        )
    },
    "an unknown strategy": ({SCALE_IN: {"eager": {}}}, f'unknown field "{SCALE_IN}.eager"'),
    "a selection policy of an opportunistic update": (
        {UPDATE: {"opportunistic": {"selectionPolicy": {}}}},
        f'unknown field "{UPDATE}.opportunistic.selectionPolicy"',
    ),
    **{
        f"an unknown {path.rpartition('.')[2]}": wrong(
            path, value, f'Unsupported value: "{value}": supported values: {values}'
        )
        for path, value, values in (
            (f"{POLICY}.basePolicy", "Newest", '"DescendingOrder", "Random"'),
            (f"{POLICY}.sortPolicy", "Smallest", '"AscendingOrder"'),
            (f"{SCALE_IN}.opportunistic.statePreservation", "Warm", '"Disabled"'),
        )
    },
    **{
        f"{path.rpartition('.')[2]}: {each}": ({path: [each]}, f"{path}[0].{message}")
        for path, each, message in (
            (CHOSEN_LABELS, requirement("In"), "values: Required value: must have at least one value"),
            (CHOSEN_LABELS, requirement("Gt", "1"), 'operator: Unsupported value: "Gt"'),
            (NODES, requirement("Near", "1"), 'operator: Unsupported value: "Near"'),
            (NODES, {"operator": "Exists"}, "key: Required value"),
            (NODES, requirement("NotIn"), "values: Required value: must have"),
            (NODES, requirement("Exists", "a"), "values: Forbidden: must be empty"),
            (NODES, requirement("Gt"), NO_INTEGER),
            (NODES, requirement("Gt", "1", "2"), NO_INTEGER),
            (NODES, requirement("Lt", "many"), NO_INTEGER),
            (NODES, requirement("Lt", "1.5"), NO_INTEGER),
        )
    },
    "a threshold of 0": (
        {f"{HEALING}.startUpFailureThreshold": 0},
        f"{HEALING}.startUpFailureThreshold in body should be greater than or equal to 1",
    ),
    **{
        f"a duration of {text!r}": wrong(
            f"{HEALING}.minFailingToStartDuration", text, f'Invalid value: "{text}": {NO_DURATION}'
        )
        for text in ("5", "-5m", "5 m", "five", "", "1d", "m")
    },
    "an unknown generated name": (
        {"spec.nameGeneration": {"append": True}},
        'unknown field "spec.nameGeneration.append"',
    ),
}

FIRST_NAMES = ("appendPostfixToSecretReferences", "appendPostfixToConfigMapReferences")
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
    "the guide's first spelling": {f"spec.{name}": name is FIRST_NAMES[0] for name in FIRST_NAMES},
    "the first spelling in nameGeneration": {"spec.nameGeneration": dict.fromkeys(FIRST_NAMES, True)},
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
            each: {"proactive": {"selectionPolicy": {"sortPolicy": sort}}} for each in (SCALE_IN, UPDATE)
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
                *(requirement("In", "a"), requirement("NotIn", "a", "b"), requirement("Exists")),
                *(requirement("DoesNotExist"), requirement("Gt", "5"), requirement("Lt", "-5")),
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
    assert dry.refuses(POOL(changes), message)


@pytest.mark.parametrize("changes", ACCEPTED.values(), ids=ACCEPTED)
def test_an_unusual_pool_is_accepted_without_a_warning(dry: DryRun, changes: Mapping[str, Any]) -> None:
    assert dry.warnings(POOL(changes)) == []


DEFAULTS = {
    "spec.replicas": 1,
    "spec.maxUnavailable": "100%",
    f"{HEALING}.startUpFailureThreshold": 3,
    f"{HEALING}.minFailingToStartDuration": "5m",
}


@pytest.mark.parametrize("value", [ABSENT, None], ids=["absent", "null"])
def test_the_defaults_are_filled_in(kubectl: Kubectl, value: object) -> None:
    sent = POOL(
        {HEALING: dict.fromkeys(("startUpFailureThreshold", "minFailingToStartDuration"))} | dict.fromkeys(DEFAULTS)
    )
    if value is ABSENT:
        sent = POOL({"spec.replicas": ABSENT, "spec.maxUnavailable": ABSENT, HEALING: {}})
    kubectl.create(sent)
    assert kubectl.json("get", "vmpool", "web")["spec"] == POOL(DEFAULTS)["spec"]


def test_no_default_is_set_for_fields_whose_absence_has_a_meaning(kubectl: Kubectl) -> None:
    """P8, P15: a pool without `sortPolicy` or `autohealing` behaves in another way than a pool with these fields. So
    the API server must not set a default.
    """
    sent = POOL({SCALE_IN: {"proactive": {"selectionPolicy": {}}}, UPDATE: {"proactive": {}}})
    kubectl.create(sent)
    assert kubectl.json("get", "vmpool", "web")["spec"] == sent["spec"]


def test_a_pool_without_its_defaults_can_be_applied_again_and_again(kubectl: Kubectl) -> None:
    bare = POOL({"spec.replicas": ABSENT, "spec.maxUnavailable": ABSENT, HEALING: {}})
    for expected in ("created", "unchanged"):
        assert kubectl("apply", "-f", "-", stdin=bare).stdout.strip().endswith(f"/web {expected}")
    assert kubectl("diff", "-f", "-", stdin=bare).stdout == ""
    assert kubectl.json("get", "vmpool", "web")["metadata"]["generation"] == 1
