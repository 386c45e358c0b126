"""P1, P3: the parsing of a pool's spec and names, with defaults, errors, and Events about settings without effect."""

from datetime import timedelta
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.apimachinery.field_error import FieldError
from controller.apimachinery.quantities import Amount
from controller.pool.plan import plan
from controller.pool.spec.intent import parse_intent
from controller.pool.spec.naming import free_ordinals, name_of, ordinal_of, parse_name
from controller.pool.spec.policies import Healing, ScaleIn, Selection, Sort, Strategy, Update
from tests.pool_builders import LABELS, intent_of, pool, snapshot, vm_spec, vms


def test_the_defaults_of_a_pool():
    intent = intent_of(pool(replicas=None))
    assert intent.replicas == 1
    assert str(intent.selector) == "app=web"
    assert intent.max_unavailable == Amount(100, percent=True)
    assert intent.scale_in == ScaleIn(Strategy.PROACTIVE, Selection(Sort.UNSTATED), preserve=False)
    assert intent.update == Update(Strategy.PROACTIVE, Selection(Sort.UNSTATED))
    assert intent.healing is None


UPDATES, SCALES_IN = (f"spec.{each}Strategy.proactive.selectionPolicy" for each in ("update", "scaleIn"))
SELECTORS = f"{SCALES_IN}.selectors"
NEAR = {"matchExpressions": [{"key": "app", "operator": "Near"}]}
TWO, ONLY_ONE = {"opportunistic": {}, "unmanaged": {}}, "only one strategy can be configured at a time"
HEALING, DURATION = "spec.autohealing", "minFailingToStartDuration"


def policy_of(kind, **policy):
    return {f"{kind}Strategy": {"proactive": {"selectionPolicy": policy}}}


def template_without(*parts, **given):
    template = {"metadata": {"labels": dict(LABELS)}, "spec": vm_spec(), **given}
    return {"virtualMachineTemplate": {key: value for key, value in template.items() if key not in parts}}


TEMPLATE = "spec.virtualMachineTemplate"
NO_LABELS, NO_SPEC, NO_VMI = (f"{TEMPLATE}.{each} is" for each in ("metadata.labels", "spec", "spec.template"))
ERRORS = {
    "negative replicas": ({"replicas": -1}, "spec.replicas is -1"),
    "no selector": ({"selector": None}, "spec.selector is empty"),
    "an empty selector": ({"selector": {}}, "spec.selector is empty"),
    "a selector that does not parse": ({"selector": NEAR}, 'spec.selector.matchExpressions[0].operator is "Near"'),
    "no template": ({"virtualMachineTemplate": None}, f"{TEMPLATE} is missing"),
    "no labels": ({"labels": None}, f"{NO_LABELS} empty"),
    "no metadata": (template_without("metadata"), f"{NO_LABELS} empty"),
    "labels that do not match": ({"labels": {"app": "db"}}, 'spec.selector "app=web" does not match'),
    "no VM spec": (template_without("spec"), f"{NO_SPEC} missing"),
    **{f"a VM spec that is {each}": (template_without(spec=each), f"{NO_SPEC} missing") for each in (None, [])},
    "no VMI template": ({"spec": {"running": True}}, f"{NO_VMI} missing"),
    **{f"a VMI template that is {each}": ({"spec": {"template": each}}, f"{NO_VMI} missing") for each in (None, [])},
    **{str(each): ({"maxUnavailable": each}, f'spec.maxUnavailable is "{each}"') for each in (0, "0%", "101%", "half")},
    "two strategies of scaling in": ({"scaleInStrategy": TWO}, f"spec.scaleInStrategy: {ONLY_ONE}"),
    "two strategies of updating": ({"updateStrategy": TWO}, f"spec.updateStrategy: {ONLY_ONE}"),
    "an unknown sort policy": (policy_of("update", sortPolicy="Youngest"), f'{UPDATES}.sortPolicy is "Youngest"'),
    "an unknown base policy": (policy_of("scaleIn", basePolicy="Youngest"), f'{SCALES_IN}.basePolicy is "Youngest"'),
    "an unknown state preservation": (
        {"scaleInStrategy": {"opportunistic": {"statePreservation": "Always"}}},
        'spec.scaleInStrategy.opportunistic.statePreservation is "Always"',
    ),
    "a label selector that does not parse": (
        policy_of("scaleIn", selectors={"labelSelector": {"matchLabels": {"not a key": "x"}}}),
        f"{SELECTORS}.labelSelector.matchLabels",
    ),
    "a node selector that does not parse": (
        policy_of(
            "scaleIn", selectors={"nodeSelectorRequirementMatcher": [{"key": "z", "operator": "Gt", "values": ["x"]}]}
        ),
        f"{SELECTORS}.nodeSelectorRequirementMatcher[0].values must be a single integer",
    ),
    "a threshold of zero": ({"autohealing": {"startUpFailureThreshold": 0}}, f"{HEALING}.startUpFailureThreshold is 0"),
    "an invalid duration": ({"autohealing": {DURATION: "soon"}}, f'{HEALING}.{DURATION} is "soon"'),
    "a quantity that Kubernetes does not read": (
        {"spec": vm_spec(disks=["a"], size="64MB")},
        f"{TEMPLATE}.spec.dataVolumeTemplates[0].spec.storage.resources.requests.storage is "
        '"64MB": it must be a quantity such as 64Mi',
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


NAMES = {
    "a pool and an ordinal": ("web-17", ("web", 17)),
    "a pool whose name ends like a VM's": ("web-1-0", ("web-1", 0)),
    "a pool with dashes": ("a-b-c-3", ("a-b-c", 3)),
    "no ordinal": ("web", None),
    "no number": ("web-a", None),
    "a leading zero": ("web-01", None),
    "a negative number belongs to another name": ("web--1", ("web-", 1)),
    "no pool": ("-1", None),
    "digits of another script": ("web-\u0663", None),
    "an ordinal with too many digits": ("web-" + "9" * 30, None),
    "nothing": ("", None),
}


@pytest.mark.parametrize(("name", "parsed"), NAMES.values(), ids=NAMES)
def test_a_name_contains_the_pool_and_the_ordinal(name, parsed):
    assert parse_name(name) == parsed


@given(st.text(min_size=1, max_size=12), st.integers(0, 10**9))
def test_every_generated_name_can_be_parsed(pool, ordinal):
    assert parse_name(name_of(pool, ordinal)) == (pool, ordinal)
    assert ordinal_of(name_of(pool, ordinal), pool) == ordinal


TEXTS = st.text(alphabet="w-019\u0663", max_size=6)


@given(TEXTS, TEXTS)
def test_the_ordinal_is_the_one_in_the_parsed_name(name, pool):
    for each in (name, pool + name, f"{pool}-{name}"):
        parsed = parse_name(each)
        expected = parsed[1] if parsed is not None and parsed[0] == pool else None
        assert ordinal_of(each, pool) == expected


def test_gaps_are_filled_before_higher_ordinals_are_used():
    assert list(islice(free_ordinals("web", {"web-0", "web-2", "web-3", "other-1"}), 4)) == [1, 4, 5, 6]
    assert list(islice(free_ordinals("web", ()), 2)) == [0, 1]


BOTH_POLICIES = {"proactive": {"selectionPolicy": {"sortPolicy": "Oldest", "basePolicy": "DescendingOrder"}}}


def notices_of(owner):
    return plan(snapshot(owner, vms(owner, 0, 1, 2))).notices


@pytest.mark.parametrize("strategy", ["scaleInStrategy", "updateStrategy"])
def test_p8_a_base_policy_beside_another_sort_policy_gives_an_event(strategy):
    [notice] = notices_of(pool(**{strategy: BOTH_POLICIES}))
    field = f"spec.{strategy}.proactive.selectionPolicy"
    assert (notice.reason, notice.warning) == ("FieldIgnored", True)
    assert notice.message == f'{field}.basePolicy is "DescendingOrder", but {field}.sortPolicy takes precedence'


@pytest.mark.parametrize("labels", [{}, {"app": "db"}], ids=["no labels", "another value"])
def test_p17_a_selector_that_matches_no_pod_gives_an_event_with_the_missing_label(labels):
    [notice] = notices_of(pool(spec=vm_spec(labels=labels)))
    assert (notice.reason, notice.warning) == ("SelectorMatchesNoPod", True)
    assert "finds no Pod: app=web of spec.selector" in notice.message
    assert notices_of(pool(spec=vm_spec(labels=labels), generation=2, replicas=3))[0].once == notice.once
