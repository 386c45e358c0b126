"""Hypothesis strategies for pools: specs with values of any type."""

import msgspec
from hypothesis import strategies as st

from tests.pool_builders import LABELS, POOLS
from tests.strategies import json_values, some_of

SORTS = ("AscendingOrder", "DescendingOrder", "Newest", "Oldest", "Random")
_texts = st.none() | st.text(max_size=6) | st.sampled_from(["web", "a/b/c", "-", "Random", "1%", "5m"])
_labels = st.none() | st.dictionaries(st.text(max_size=6) | st.just("app"), st.just("web"), max_size=2)
_operators = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", ""])
_keys = _texts.filter(lambda text: text is not None)
_requirements = st.none() | st.lists(some_of(key=_keys, operator=_operators, values=st.none()), max_size=2)
_selectors = st.none() | some_of(matchLabels=_labels, matchExpressions=_requirements)
_policies = st.none() | some_of(
    sortPolicy=st.none() | st.sampled_from([*SORTS, "Sideways"]),
    selectors=st.none() | some_of(labelSelector=_selectors, nodeSelectorRequirementMatcher=_requirements),
)
_blocks = st.none() | some_of(selectionPolicy=_policies, statePreservation=_texts)
_strategies = st.none() | some_of(proactive=_blocks, opportunistic=_blocks, unmanaged=_blocks)
_names = st.none() | st.sampled_from(["data", "", "x-1"]) | json_values
_named = json_values | st.fixed_dictionaries({"name": _names})
_disks = json_values | st.lists(
    json_values | some_of(metadata=st.none() | st.fixed_dictionaries({"name": _names})), max_size=3
)
_sources = {
    "dataVolume": _named,
    "persistentVolumeClaim": json_values | st.fixed_dictionaries({"claimName": _names}),
    "configMap": _named,
    "secret": json_values | st.fixed_dictionaries({"secretName": _names}),
    "sysprep": json_values | st.fixed_dictionaries({"secret": json_values}),
    "cloudInitNoCloud": json_values | st.fixed_dictionaries({"secretRef": json_values}),
}
_volumes = json_values | st.lists(json_values | st.fixed_dictionaries({"name": _names}, optional=_sources), max_size=3)
_machines = json_values | some_of(
    metadata=json_values | some_of(labels=_labels | json_values),
    spec=json_values | some_of(volumes=_volumes, domain=json_values),
)
wild_specs = some_of(dataVolumeTemplates=_disks, template=_machines, runStrategy=_texts, more=json_values)
"""VM specs whose fields can have values of any type."""

_wild_fields = some_of(
    replicas=st.none() | st.integers(-2, 5),
    paused=st.none() | st.booleans(),
    selector=_selectors | st.just({"matchLabels": LABELS}),
    virtualMachineTemplate=st.none()
    | some_of(metadata=st.none() | some_of(labels=_labels), spec=json_values | wild_specs),
    maxUnavailable=st.none() | st.integers(-1, 4) | st.text(max_size=4) | st.just("50%"),
    nameGeneration=st.none() | some_of(appendIndexToSecretRefs=st.none() | st.booleans()),
    scaleInStrategy=_strategies,
    updateStrategy=_strategies,
    autohealing=st.none()
    | some_of(startUpFailureThreshold=st.none() | st.integers(-1, 4), minFailingToStartDuration=_texts),
)
_metadata = {"name": "web", "namespace": "default", "uid": "uid-of-the-pool", "generation": 1}
wild_pools = st.fixed_dictionaries({"metadata": st.just(_metadata)}, optional={"spec": _wild_fields}).map(
    lambda document: POOLS.decode(msgspec.json.encode(document))
)
"""All documents that can be decoded as a pool. A stored pool may be older than the validation."""
