"""P1: the parsing of a pool's spec, with its defaults and errors."""

from datetime import timedelta

import pytest

from controller.apimachinery.field_error import FieldError
from controller.apimachinery.quantities import Amount
from controller.pool.spec.intent import parse_intent
from controller.pool.spec.policies import Healing, ScaleIn, Selection, Sort, Strategy, Update
from tests.pool_builders import LABELS, intent_of, pool, vm_spec


def test_the_defaults_of_a_pool():
    intent = intent_of(pool(replicas=None))
    assert intent.replicas == 1
    assert str(intent.selector) == "app=web"
    assert intent.max_unavailable == Amount(100, percent=True)
    assert intent.scale_in == ScaleIn(Strategy.PROACTIVE, Selection(Sort.UNSTATED), preserve=False)
    assert intent.update == Update(Strategy.PROACTIVE, Selection(Sort.UNSTATED))
    assert intent.healing is None


SELECTORS = "spec.scaleInStrategy.proactive.selectionPolicy.selectors"


def selecting(**selectors):
    return {"scaleInStrategy": {"proactive": {"selectionPolicy": {"selectors": selectors}}}}


ERRORS = {
    "negative replicas": ({"replicas": -1}, "spec.replicas is -1"),
    "no selector": ({"selector": None}, "spec.selector is empty"),
    "an empty selector": ({"selector": {}}, "spec.selector is empty"),
    "a selector that does not parse": (
        {"selector": {"matchExpressions": [{"key": "app", "operator": "Near"}]}},
        'spec.selector.matchExpressions[0].operator is "Near"',
    ),
    "no template": ({"virtualMachineTemplate": None}, "spec.virtualMachineTemplate is missing"),
    "no labels": ({"labels": None}, "spec.virtualMachineTemplate.metadata.labels is empty"),
    "no metadata": (
        {"virtualMachineTemplate": {"spec": vm_spec()}},
        "spec.virtualMachineTemplate.metadata.labels is empty",
    ),
    "labels that do not match": ({"labels": {"app": "db"}}, 'spec.selector "app=web" does not match'),
    "no VM spec": (
        {"virtualMachineTemplate": {"metadata": {"labels": dict(LABELS)}}},
        "spec.virtualMachineTemplate.spec is missing",
    ),
    "a VM spec that is null": (
        {"virtualMachineTemplate": {"metadata": {"labels": dict(LABELS)}, "spec": None}},
        "spec.virtualMachineTemplate.spec is missing",
    ),
    "a VM spec that is a list": (
        {"virtualMachineTemplate": {"metadata": {"labels": dict(LABELS)}, "spec": []}},
        "spec.virtualMachineTemplate.spec is missing",
    ),
    "no VMI template": ({"spec": {"running": True}}, "spec.virtualMachineTemplate.spec.template is missing"),
    "a VMI template that is null": (
        {"spec": {"template": None}},
        "spec.virtualMachineTemplate.spec.template is missing",
    ),
    "a VMI template that is a list": (
        {"spec": {"template": []}},
        "spec.virtualMachineTemplate.spec.template is missing",
    ),
    "zero": ({"maxUnavailable": 0}, 'spec.maxUnavailable is "0"'),
    "0%": ({"maxUnavailable": "0%"}, 'spec.maxUnavailable is "0%"'),
    "101%": ({"maxUnavailable": "101%"}, 'spec.maxUnavailable is "101%"'),
    "text": ({"maxUnavailable": "half"}, 'spec.maxUnavailable is "half"'),
    "two strategies of scaling in": (
        {"scaleInStrategy": {"proactive": {}, "unmanaged": {}}},
        "spec.scaleInStrategy: only one strategy can be configured at a time",
    ),
    "two strategies of updating": (
        {"updateStrategy": {"opportunistic": {}, "unmanaged": {}}},
        "spec.updateStrategy: only one strategy can be configured at a time",
    ),
    "an unknown sort policy": (
        {"updateStrategy": {"proactive": {"selectionPolicy": {"sortPolicy": "Youngest"}}}},
        'spec.updateStrategy.proactive.selectionPolicy.sortPolicy is "Youngest"',
    ),
    "an unknown state preservation": (
        {"scaleInStrategy": {"opportunistic": {"statePreservation": "Always"}}},
        'spec.scaleInStrategy.opportunistic.statePreservation is "Always"',
    ),
    "a label selector that does not parse": (
        selecting(labelSelector={"matchLabels": {"not a key": "x"}}),
        f"{SELECTORS}.labelSelector.matchLabels",
    ),
    "a node selector that does not parse": (
        selecting(nodeSelectorRequirementMatcher=[{"key": "zone", "operator": "Gt", "values": ["high"]}]),
        f"{SELECTORS}.nodeSelectorRequirementMatcher[0].values must be a single integer",
    ),
    "a threshold of zero": (
        {"autohealing": {"startUpFailureThreshold": 0}},
        "spec.autohealing.startUpFailureThreshold is 0",
    ),
    "an unknown base policy": (
        {"scaleInStrategy": {"proactive": {"selectionPolicy": {"basePolicy": "Youngest"}}}},
        'spec.scaleInStrategy.proactive.selectionPolicy.basePolicy is "Youngest"',
    ),
    "a quantity that Kubernetes does not read": (
        {"spec": vm_spec(disks=["a"], size="64MB")},
        "spec.virtualMachineTemplate.spec.dataVolumeTemplates[0].spec.storage.resources.requests.storage is "
        '"64MB": it must be a quantity such as 64Mi',
    ),
    "an invalid duration": (
        {"autohealing": {"minFailingToStartDuration": "soon"}},
        'spec.autohealing.minFailingToStartDuration is "soon"',
    ),
}


@pytest.mark.parametrize(("fields", "message"), ERRORS.values(), ids=ERRORS)
def test_p1_an_invalid_spec_gives_one_sentence(fields, message):
    error = parse_intent(pool(**fields))
    assert isinstance(error, FieldError)
    assert error.message.startswith(message)
    assert not error.message.endswith(".")


PRESERVATION = [
    ("proactive", None, False),
    ("proactive", "Disabled", False),
    ("proactive", "Offline", True),
    ("proactive", "Online", True),
    ("opportunistic", "Offline", True),
    ("unmanaged", "Offline", False),
]


@pytest.mark.parametrize(("strategy", "state", "preserved"), PRESERVATION)
def test_p9_p10_which_strategies_preserve_disks(strategy, state, preserved):
    scale_in = intent_of(pool(scaleInStrategy={strategy: {"statePreservation": state}})).scale_in
    assert (scale_in.strategy, scale_in.preserve) == (strategy, preserved)


@pytest.mark.parametrize("sort", ["AscendingOrder", "DescendingOrder", "Newest", "Oldest", "Random"])
def test_p8_p13_both_strategies_take_a_selection_policy(sort):
    block = {
        "proactive": {"selectionPolicy": {"sortPolicy": sort, "selectors": {"labelSelector": {"matchLabels": LABELS}}}}
    }
    intent = intent_of(pool(scaleInStrategy=block, updateStrategy=block))
    assert intent.scale_in.selection == intent.update.selection
    assert intent.update.selection.sort == sort
    assert str(intent.update.selection.labels) == "app=web"


BASE_POLICIES = {
    "basePolicy alone": ({"basePolicy": "DescendingOrder"}, "DescendingOrder"),
    "sortPolicy takes precedence": ({"basePolicy": "DescendingOrder", "sortPolicy": "Oldest"}, "Oldest"),
    "an empty sortPolicy": ({"basePolicy": "Random", "sortPolicy": ""}, "Random"),
    "an empty basePolicy": ({"basePolicy": ""}, ""),
}


@pytest.mark.parametrize(("policy", "sort"), BASE_POLICIES.values(), ids=BASE_POLICIES)
def test_p8_p13_the_base_policy_of_kubevirt_1_6_is_a_sort_policy(policy, sort):
    block = {"proactive": {"selectionPolicy": policy}}
    intent = intent_of(pool(scaleInStrategy=block, updateStrategy=block))
    assert (intent.scale_in.selection.sort, intent.update.selection.sort) == (sort, sort)


def test_p15_autohealing_is_parsed_and_has_defaults():
    assert intent_of(pool(autohealing={})).healing == Healing(3, timedelta(minutes=5))
    given = {"startUpFailureThreshold": 1, "minFailingToStartDuration": "90s"}
    assert intent_of(pool(autohealing=given)).healing == Healing(1, timedelta(seconds=90))


def digests(**fields):
    template = intent_of(pool(**fields)).template
    return template.digest, template.machine, template.disks


SAME = {
    "another order of fields": {"spec": dict(reversed(vm_spec(disks=["a"]).items()))},
    "another number of replicas": {"spec": vm_spec(disks=["a"]), "replicas": 9},
    "a boolean with its default": {"spec": vm_spec(disks=["a"]), "nameGeneration": {"appendIndexToSecretRefs": False}},
    "the older name of the boolean, with its default": {
        "spec": vm_spec(disks=["a"]),
        "appendPostfixToSecretReferences": False,
    },
}


@pytest.mark.parametrize("fields", SAME.values(), ids=SAME)
def test_p11_templates_with_the_same_meaning_have_the_same_digests(fields):
    assert digests(**fields) == digests(spec=vm_spec(disks=["a"]))


DIFFERENT = {
    "labels": ({"labels": {**LABELS, "x": "y"}}, (False, True, True)),
    "annotations": ({"template_annotations": {"x": "y"}}, (False, True, True)),
    "the run strategy": ({"spec": vm_spec(disks=["a"], run_strategy="Halted")}, (False, True, True)),
    "the image": ({"spec": vm_spec(disks=["a"], image="v2")}, (False, False, True)),
    "a disk's size": ({"spec": vm_spec(disks=["a"], size="2Gi")}, (False, True, True)),
    "a disk's class": ({"spec": vm_spec(disks=["a"], storage_class="slow")}, (False, True, False)),
    "an index without references": ({"nameGeneration": {"appendIndexToSecretRefs": True}}, (True, True, True)),
}


@pytest.mark.parametrize(("fields", "same"), DIFFERENT.values(), ids=DIFFERENT)
def test_p13_the_digests_show_which_part_changed(fields, same):
    """`same` says which of three digests do not change: the digest of the whole template, of its VMI part, and of its
    disks.
    """
    before, after = digests(spec=vm_spec(disks=["a"])), digests(**{"spec": vm_spec(disks=["a"]), **fields})
    assert tuple(one == other for one, other in zip(before, after, strict=True)) == same


@pytest.mark.parametrize(
    ("flag", "volume"),
    [
        ("appendIndexToConfigMapRefs", {"configMap": {"name": "app"}}),
        ("appendIndexToSecretRefs", {"secret": {"secretName": "key"}}),
        ("appendIndexToSecretRefs", {"cloudInitNoCloud": {"networkDataSecretRef": {"name": "key"}}}),
    ],
)
def test_p5_an_index_changes_a_template_with_such_a_reference(flag, volume):
    spec = vm_spec(volumes=[{"name": "extra", **volume}])
    before, after = digests(spec=spec), digests(spec=spec, nameGeneration={flag: True})
    assert tuple(one == other for one, other in zip(before, after, strict=True)) == (False, False, True)
