"""Hypothesis strategies for pools: clusters with a history, edits by users, and invalid specs."""

import msgspec
from hypothesis import strategies as st

from controller.kubevirt.annotations import (
    DELETION_COST,
    MAX_UNHEALTHY,
    MIN_READY,
    PARTITION,
    POOL_FINALIZER,
    PROTECT,
    REMOVE,
)
from controller.kubevirt.pool_types import Pool
from controller.kubevirt.resources import VMS, Listener
from informers.resource import Resource
from tests.fakes.rules import finalizers_of
from tests.pool_builders import ANOTHER_CONTROLLER, LABELS, OTHER_FINALIZER, POOLS, Json, pool, vm_spec
from tests.pool_simulation import PoolSimulation
from tests.strategies import choice, json_values

SORTS = (None, "AscendingOrder", "DescendingOrder", "Newest", "Oldest", "Random")
BYSTANDERS = ("web-1", "web-7", "other")
"""Names of VMs with other owners in the pool's namespace. Two of the names look like names of the pool's VMs."""

OTHERS = Resource(Listener, group="example.org", version="v1", plural="others", kind="Other")
"""A kind that is not a pool. Its objects can own VMs."""

BYSTANDING = {"bystander": "true"}


_BYSTANDERS = st.sets(st.sampled_from(BYSTANDERS))
_MATCHING = st.sampled_from([LABELS, {"tier": "spare"}])


@st.composite
def policies(draw: st.DrawFn, *, selectors: bool = True) -> Json:
    policy: Json = {}
    if sort := draw(choice(*SORTS)):
        policy["sortPolicy"] = sort
    if selectors and not draw(st.integers(0, 3)):
        matching = {**draw(_MATCHING)}
        policy["selectors"] = {"labelSelector": {"matchLabels": matching}}
    return policy


@st.composite
def scale_ins(draw: st.DrawFn, *, preserve: bool | None = None) -> Json | None:
    """A scale-in strategy. `preserve` says whether the strategy preserves disks. If `preserve` is None, both values are
    possible.
    """
    states = {None: ("Disabled", "Offline", "Online"), True: ("Offline", "Online"), False: ("Disabled",)}[preserve]
    kinds = ("proactive", "opportunistic") if preserve else (None, "proactive", "opportunistic", "unmanaged")
    kind = draw(choice(*kinds))
    if kind is None:
        return None
    block: Json = {} if kind == "unmanaged" else {"statePreservation": draw(choice(*states))}
    if kind == "proactive":
        block["selectionPolicy"] = draw(policies())
    return {kind: block}


@st.composite
def pools(draw: st.DrawFn, **fixed: object) -> Pool:
    """Valid pools with all policies. The fields in `fixed` are not varied."""
    update = draw(choice(None, "proactive", "opportunistic", "unmanaged"))
    block = {"selectionPolicy": draw(policies(selectors=False))} if update == "proactive" else {}
    fields: Json = {
        "replicas": draw(st.integers(0, 6)),
        "maxUnavailable": draw(choice(None, 1, 2, "25%", "50%", "100%")),
        "scaleInStrategy": draw(scale_ins()),
        "updateStrategy": {update: block} if update else None,
        "finalizers": draw(choice((), (OTHER_FINALIZER,))),
        "spec": vm_spec(disks=draw(choice((), ("data",), ("data", "root-disk")))),
    }
    return pool(**{**fields, **fixed})


@st.composite
def simulations(draw: st.DrawFn, *, bystanders: bool = False, **fixed: object) -> PoolSimulation:
    """A pool without VMs. With `bystanders`, the namespace can contain VMs of other owners."""
    simulation = PoolSimulation(draw(pools(**fixed)), burst=draw(st.integers(1, 6)), cdi=draw(st.booleans()))
    owner = simulation.server.put(OTHERS, {"metadata": {"name": "other"}})["metadata"]
    reference = {**msgspec.to_builtins(ANOTHER_CONTROLLER), "uid": owner["uid"]}
    for name in draw(_BYSTANDERS) if bystanders else ():
        owners = draw(st.sampled_from([[], [reference]]))
        metadata = {"name": name, "labels": {**LABELS, **BYSTANDING}, "ownerReferences": owners}
        simulation.server.put(VMS, {"metadata": metadata, "spec": vm_spec()})
    return simulation


EDITS = ("scale", "scale", "template", "disks", "preserve", "finalizer", "delete", "detach", "relabel", "mark", "halt")
GENTLE_EDITS = ("scale", "scale", "template", "rename", "delete", "mark", "halt")
"""Edits that must not cause the loss of a preserved disk."""


@st.composite
def edits(draw: st.DrawFn, simulation: PoolSimulation, kinds: tuple[str, ...] = EDITS) -> str:
    """A user changes the pool or one of its VMs. The kind of the change is returned for the output of a failed test."""
    kind = draw(choice(*kinds))
    names = simulation.running()
    if kind == "scale" or not names:
        simulation.change(replicas=draw(st.integers(0, 6)))
        return "scale"
    if kind == "preserve":
        simulation.change(scaleInStrategy=draw(scale_ins()))
        return kind
    name = draw(choice(*names))
    match kind:
        case "template" | "disks" | "rename":
            disks = [each["metadata"]["name"] for each in simulation.template().get("dataVolumeTemplates", [])]
            spec = vm_spec(
                image=draw(choice("v1", "v2", "v3")),
                disks=[f"new-{disk}"[:12] for disk in disks] if kind == "rename" else disks,
                size=draw(choice("1Gi", "2Gi")) if kind == "disks" else "1Gi",
            )
            simulation.change(virtualMachineTemplate={"metadata": {"labels": dict(LABELS)}, "spec": spec})
        case "delete":
            simulation.delete_by_user(name, foreground=kinds is EDITS and draw(st.booleans()))
        case "detach":
            simulation.edit_vm(name, metadata={"ownerReferences": []})
        case "finalizer":
            others = [each for each in finalizers_of(simulation.vms[name]) if each != POOL_FINALIZER]
            ours = draw(choice((), (POOL_FINALIZER,)))
            simulation.edit_vm(name, metadata={"finalizers": [*others, *ours]})
        case "relabel":
            simulation.edit_vm(name, metadata={"labels": {"app": "debug"}})
        case "mark":
            mark, value = draw(choice((REMOVE, "true"), (PROTECT, "true"), (DELETION_COST, "-5")))
            simulation.edit_vm(name, metadata={"annotations": {mark: value}})
        case "halt":
            simulation.edit_vm(name, spec={"runStrategy": "Halted"})
    return kind


STEERING = st.fixed_dictionaries(
    {},
    optional={
        PARTITION: st.sampled_from(["0", "1", "3", "what"]),
        MIN_READY: st.sampled_from(["0", "2", "-1"]),
        MAX_UNHEALTHY: st.sampled_from(["1", "50%", "100%", "many"]),
    },
)

_texts = st.none() | st.text(max_size=6) | st.sampled_from(["web", "a/b/c", "-", "Random", "1%", "5m"])
_labels = st.none() | st.dictionaries(st.text(max_size=6) | st.just("app"), st.just("web"), max_size=2)
_operators = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", ""])
_requirements = st.none() | st.lists(
    st.fixed_dictionaries(
        {}, optional={"key": _texts.filter(lambda text: text is not None), "operator": _operators, "values": st.none()}
    ),
    max_size=2,
)
_selectors = st.none() | st.fixed_dictionaries({}, optional={"matchLabels": _labels, "matchExpressions": _requirements})
_policies = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "sortPolicy": st.none() | st.sampled_from([*SORTS[1:], "Sideways"]),
        "selectors": st.none()
        | st.fixed_dictionaries(
            {}, optional={"labelSelector": _selectors, "nodeSelectorRequirementMatcher": _requirements}
        ),
    },
)
_blocks = st.none() | st.fixed_dictionaries({}, optional={"selectionPolicy": _policies, "statePreservation": _texts})
_strategies = st.none() | st.fixed_dictionaries(
    {}, optional={"proactive": _blocks, "opportunistic": _blocks, "unmanaged": _blocks}
)
_names = st.none() | st.sampled_from(["data", "", "x-1"]) | json_values
_disks = json_values | st.lists(
    json_values | st.fixed_dictionaries({}, optional={"metadata": st.none() | st.fixed_dictionaries({"name": _names})}),
    max_size=3,
)
_volumes = json_values | st.lists(
    json_values
    | st.fixed_dictionaries(
        {"name": _names},
        optional={
            "dataVolume": json_values | st.fixed_dictionaries({"name": _names}),
            "persistentVolumeClaim": json_values | st.fixed_dictionaries({"claimName": _names}),
            "configMap": json_values | st.fixed_dictionaries({"name": _names}),
            "secret": json_values | st.fixed_dictionaries({"secretName": _names}),
            "sysprep": json_values | st.fixed_dictionaries({"secret": json_values}),
            "cloudInitNoCloud": json_values | st.fixed_dictionaries({"secretRef": json_values}),
        },
    ),
    max_size=3,
)
_machines = json_values | st.fixed_dictionaries(
    {},
    optional={
        "metadata": json_values | st.fixed_dictionaries({}, optional={"labels": _labels | json_values}),
        "spec": json_values | st.fixed_dictionaries({}, optional={"volumes": _volumes, "domain": json_values}),
    },
)
wild_specs = st.fixed_dictionaries(
    {}, optional={"dataVolumeTemplates": _disks, "template": _machines, "runStrategy": _texts, "more": json_values}
)
"""VM specs whose fields can have values of any type."""

wild_pools = st.fixed_dictionaries(
    {"metadata": st.just({"name": "web", "namespace": "default", "uid": "uid-of-the-pool", "generation": 1})},
    optional={
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "replicas": st.none() | st.integers(-2, 5),
                "paused": st.none() | st.booleans(),
                "selector": _selectors | st.just({"matchLabels": LABELS}),
                "virtualMachineTemplate": st.none()
                | st.fixed_dictionaries(
                    {},
                    optional={
                        "metadata": st.none() | st.fixed_dictionaries({}, optional={"labels": _labels}),
                        "spec": json_values | wild_specs,
                    },
                ),
                "maxUnavailable": st.none() | st.integers(-1, 4) | st.text(max_size=4) | st.just("50%"),
                "nameGeneration": st.none()
                | st.fixed_dictionaries({}, optional={"appendIndexToSecretRefs": st.none() | st.booleans()}),
                "scaleInStrategy": _strategies,
                "updateStrategy": _strategies,
                "autohealing": st.none()
                | st.fixed_dictionaries(
                    {},
                    optional={
                        "startUpFailureThreshold": st.none() | st.integers(-1, 4),
                        "minFailingToStartDuration": _texts,
                    },
                ),
            },
        )
    },
).map(lambda document: POOLS.decode(msgspec.json.encode(document)))
"""All documents that can be decoded as a pool. A stored pool may be older than the validation."""
