"""Hypothesis strategies: replica sets, VMIs in every state, and invalid documents."""

from collections.abc import Hashable
from functools import lru_cache
from typing import Any

import msgspec
from hypothesis import strategies as st

from controller.kubevirt import annotations as names
from controller.kubevirt.replicaset_types import ReplicaSet
from controller.kubevirt.vmi_types import VirtualMachineInstance
from controller.replicaset.back_off import annotation_of
from controller.replicaset.template import Template, parse_template
from tests.builders import ANOTHER_CONTROLLER, LABELS, replicaset, seconds_ago, snapshot, vmi

PHASES = (None, "Pending", "Scheduling", "Scheduled", "Running", "Succeeded", "Failed", "Unknown")
SURGES = ("maxSurge=1,maxUnavailable=0", "maxSurge=50%,maxUnavailable=1")


@lru_cache(maxsize=1000, typed=True)
def choice(*values: Hashable) -> st.SearchStrategy[Any]:
    """One of these values. A strategy that is made again for each draw costs more time than the draw."""
    return st.sampled_from(values)


def some_of(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """JSON objects with any of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def template_of(owner: ReplicaSet) -> Template:
    template = parse_template(owner)
    assert isinstance(template, Template)
    return template


def template_hash_of(owner: ReplicaSet) -> str:
    return template_of(owner).hash


@st.composite
def replicasets(draw: st.DrawFn, *, rolling: bool | None = None) -> ReplicaSet:
    """Valid sets that are not paused or terminating, with or without rolling updates."""
    roll = draw(st.booleans()) if rolling is None else rolling
    limits = draw(choice(*(f"maxUnavailable={each}" for each in ("1", "2", "25%", "50%", "100%")), *SURGES))
    return replicaset(
        replicas=draw(st.integers(0, 8)),
        annotations={names.ROLLING_UPDATE: limits} if roll else None,
        template_name=draw(choice("test", None)),
        generation=draw(st.integers(1, 3)),
    )


def draw_vmi(draw: st.DrawFn, name: str, owner: ReplicaSet) -> VirtualMachineInstance:
    """A VMI in any state: member, orphan or VMI of another owner, with or without matching labels, outdated or not."""
    role = draw(choice("member", "member", "member", "orphan", "stranger"))
    labels = dict(LABELS) if draw(st.integers(0, 4)) else {"myvmi": "detached"}
    if draw(st.booleans()):
        labels[names.TEMPLATE_HASH] = draw(choice(template_hash_of(owner), "older"))
    annotations = {key: "true" for key in (names.REMOVE, names.PROTECT) if not draw(st.integers(0, 5))}
    cost = draw(choice(None, None, "-3", "10", "cheap"))
    if cost is not None:
        annotations[names.DELETION_COST] = cost
    history = draw(choice(None, None, None, 1, 2, 6, "rubbish"))
    if history is not None:
        born = seconds_ago(draw(st.integers(0, 400)))
        annotations[names.EARLY_FAILURES] = annotation_of(history, born, born) if isinstance(history, int) else history
    return vmi(
        name,
        owner=owner if role == "member" else None,
        owners=(ANOTHER_CONTROLLER,) if role == "stranger" else (),
        labels=labels,
        annotations=annotations,
        deleting=not draw(st.integers(0, 5)),
        phase=draw(choice(*PHASES, *("Running",) * 6)),
        node=draw(choice(None, "node-1", "node-2")),
        ready=draw(choice(None, False, True, True)),
        reason=draw(choice(None, None, "PodTerminating")),
        ready_for_s=draw(st.integers(0, 2000)),
        age_s=draw(st.integers(2000, 4000)),
        migrating=draw(st.booleans()),
        entered_s=draw(st.sampled_from([None, None, {}, {"Running": 30, "Failed": 5}, {"Failed": 200}])),
    )


@st.composite
def snapshots(draw: st.DrawFn, *, rolling: bool | None = None):
    """Snapshots of valid sets. A small `burst` makes many plans reach the limit."""
    owner = draw(replicasets(rolling=rolling))
    vmis = [draw_vmi(draw, f"vm-{number}", owner) for number in range(draw(st.integers(0, 12)))]
    return snapshot(owner, vmis, burst=draw(st.integers(1, 6)))


_maybe_text = st.none() | st.text(max_size=6) | st.sampled_from(["myvmi", "a/b/c", "-", "test"])
_labels = st.none() | st.dictionaries(st.text(max_size=6) | st.just("myvmi"), st.just("myvmi"), max_size=2)
_expressions = some_of(
    key=st.sampled_from(["myvmi", "", "x y"]),
    operator=st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", ""]),
    values=st.none() | st.lists(st.sampled_from(["myvmi", "", "!"]), max_size=2),
)
_specs = json_values | some_of(domain=json_values, volumes=json_values, volumeName=json_values)
_templates = some_of(
    metadata=st.none() | some_of(name=_maybe_text, generateName=_maybe_text, labels=_labels, annotations=_labels),
    spec=_specs,
)
_selectors = some_of(matchLabels=_labels, matchExpressions=st.none() | st.lists(_expressions, max_size=2))
_wild_fields = some_of(
    replicas=st.none() | st.integers(-2, 5),
    paused=st.none() | st.booleans(),
    selector=st.none() | _selectors,
    template=st.none() | _templates,
)
_metadata = {"name": "wild", "namespace": "default", "uid": "uid-of-the-set", "generation": 1}
wild_replicasets = st.fixed_dictionaries({"metadata": st.just(_metadata)}, optional={"spec": _wild_fields}).map(
    lambda document: msgspec.json.decode(msgspec.json.encode(document), type=ReplicaSet)
)
"""All documents that can be decoded as a ReplicaSet. A stored set may be older than the validation."""
