"""The story of a life: what users do and which faults happen, as data. A seed makes the story before the life begins.

Members are named by a number, because their names are not known in advance: the number selects one of the members that
exist at that time. So a story stays valid if acts are left out, and can be shrunk.
"""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Final, TypeAlias

from msgspec import Struct, structs

from controller.kubevirt import annotations as names
from tests.simulation import features
from tests.simulation.guests import BAD, GOOD, JOB, SICK
from tests.simulation.kubevirt import NODES
from tests.simulation.live import IMMOVABLE, LIVE_UPDATE, NO_METHODS, STAGE
from tests.simulation.world import BEGIN, Options

BUSY_FROM_S, BUSY_UNTIL_S = 20.0, 330.0
"""The time of the life in which users act and faults happen, in seconds."""

MARGIN_S: Final = 20.0


class Act(Struct, frozen=True):
    """One thing that happens `at` this second of the life. `what` names a method of `Users` or of `Weather`."""

    at: float
    what: str
    args: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.at:6.1f} s  {self.what}({', '.join(map(repr, self.args))})"


def title(act: Act) -> str:
    """The act without its circumstances. The title of a fault has its kind and its target."""
    return f"fault {act.args[0]} {act.args[3]}".rstrip() if act.what == "fault" else act.what


def catalogue() -> Iterator[str]:
    """The titles of all acts and faults."""
    yield from {**_POOL_ACTS, **_SET_ACTS, "restore": ()}
    for kind, (_, _, targets) in _FAULTS.items():
        yield from (f"fault {kind} {target}".rstrip() for target in targets or ("",))


class Story(Struct, frozen=True):
    seed: str
    options: Options
    acts: tuple[Act, ...]


def make_story(seed: int) -> Story:
    chance = Random(f"{seed} story")
    options = Options(
        cdi=chance.random() < 0.7,
        syncs_labels=chance.random() < 0.6,
        budgets=chance.random() < 0.9,
        standby=chance.random() < 0.5,
        max_replicas=chance.choice((40, 40, 8)),
        rollout=chance.choice(("", LIVE_UPDATE, NO_METHODS, IMMOVABLE, STAGE)),
        plugs=chance.random() < 0.5,
        takeover=chance.random() < 0.1,
        elsewhere=chance.choice(("", "", "web", "db")),
    )
    starts = options.rollout == NO_METHODS and Random(f"{seed} migrations").random() < 0.5
    options = structs.replace(options, migrations=starts)
    acts = list(_births(seed, chance))
    if options.takeover:
        acts = [Act(each.at, each.what, (*each.args[:2], {**each.args[2], "taken_over": True})) for each in acts]
    owners = [(act.args[0], act.args[1]) for act in acts]
    themes = chance.sample(tuple(THEMES), chance.randint(1, 2))
    acts = [_with_themes(act, themes, chance) for act in acts]
    moments = sorted(chance.uniform(BUSY_FROM_S, BUSY_UNTIL_S) for _ in range(chance.randint(6, 26)))
    for at in moments:
        kind, name = chance.choice(owners)
        acts.append(_some_act(round(at, 1), kind, name, themes, chance))
    if chance.random() < 0.5:
        acts += _some_faults(chance)
    acts += _hidden_faults(Random(f"{seed} hidden"), owners[0])
    acts += _restores(Random(f"{seed} restore"), owners)
    return Story(str(seed), options, tuple(sorted(acts, key=lambda act: act.at)))


BORN: Final = (("pool",), ("set",), ("pool", "set"), ("pool", "pool"), ("set", "set", "pool"))


def _births(seed: int, chance: Random) -> Iterator[Act]:
    kinds = chance.choice(BORN)
    shares_labels = chance.random() < 0.15
    for number, kind in enumerate(kinds):
        name = ("web", "db", "cache")[number]
        at = round(chance.uniform(2, 8), 1)
        yield Act(at, "create", (kind, name, _birth(kind, name, 3 * seed + number, chance, shares_labels)))


def _birth(kind: str, name: str, turn: int, chance: Random, shares_labels: bool) -> dict[str, Any]:
    strategies = ("Always",) * 6 + ("RerunOnFailure", "Once", "Manual")
    fields = dict(features.some_field(kind, chance) for _ in range(chance.randint(0, 2)))
    if kind == "pool" and chance.random() < 0.7:
        fields["maxUnavailable"] = chance.choice((1, 1, 2, "50%"))
    return {
        "replicas": chance.randint(1, 6),
        "app": "shared" if shares_labels else name,
        "image": chance.choice(("v1", "v1", "v1", "slow", JOB)) if kind == "pool" else "v1",
        "disks": chance.choice(((), (), ("d",), ("d", "e"))) if kind == "pool" else (),
        "strategy": chance.choice(strategies) if kind == "pool" else "",
        "shares_disks": chance.random() < 0.05,
        "in_service": chance.random() < 0.5,
        "annotations": features.some_features(kind, turn, chance),
        "fields": {key: value for key, value in fields.items() if value is not None and key != "paused"},
    }


def _with_themes(act: Act, themes: list[str], chance: Random) -> Act:
    """The birth of a set or pool with the features of the themes, in three cases of four."""
    kind, name, given = act.args
    features_of_kind = features.features_of(kind)
    added = {
        feature: chance.choice(features.GOOD_VALUES[feature])
        for theme in themes
        for feature in THEMES[theme].features
        if feature in features_of_kind and chance.random() < 0.75
    }
    return Act(act.at, act.what, (kind, name, {**given, "annotations": {**given["annotations"], **added}}))


def _some_act(at: float, kind: str, name: str, themes: list[str], chance: Random) -> Act:
    acts = _POOL_ACTS if kind == "pool" else _SET_ACTS
    weights = {what: weight for what, (weight, _) in acts.items()}
    for what in (what for theme in themes for what in THEMES[theme].acts if what in weights):
        weights[what] *= 4
    [what] = chance.choices(list(weights), list(weights.values()))
    return Act(at, what, (kind, name, *acts[what][1](kind, chance)))


class Theme(Struct, frozen=True):
    """Features and acts that are frequent in a life."""

    features: tuple[str, ...]
    acts: tuple[str, ...]


THEMES: Final = {
    "drain": Theme((names.DRAIN_SECONDS,), ("template", "answer_drains", "hold_drains", "scale", "change_disks")),
    "steps": Theme((names.PARTITION,), ("template", "scale", "mark", "crash")),
    "return": Theme((names.ROLLBACK, names.PROGRESS_DEADLINE), ("template", "undo", "accident", "try_templates")),
    "lost": Theme((names.SUBSTITUTE_LOST_AFTER,), ("lose_node", "return_node", "bad_second", "grace", "edit_grace")),
    "healing": Theme((names.REPLACE_UNREADY_AFTER, names.MAX_UNHEALTHY), ("accident", "scale", "mark")),
    "disks": Theme(
        (names.MOST_DISRUPTIVE, names.INDEX_SYSPREP), ("change_disks", "delete_claim", "scale", "static_claim")
    ),
    "jobs": Theme((names.REPLACE_FINISHED, names.SCALE_IN), ("accident", "scale", "template")),
    "budgets": Theme((names.DISRUPTION_BUDGET,), ("annotate", "scale", "template", "evict")),
    "takeover": Theme((names.TAKEOVER, names.INDEX_SYSPREP), ("template", "change_field", "undo", "live_change")),
    "standby": Theme(
        (names.STANDBY, names.STANDBY_MODE, names.REUSE),
        ("scale", "template", "claim", "switch_vm", "pause_vm", "crash_at_step"),
    ),
    "rolling": Theme((names.ROLLING_UPDATE, names.MIN_READY), ("template", "protect_all", "mark", "undo")),
}

_Arguments: TypeAlias = Callable[[str, Random], tuple[Any, ...]]


def _alone(kind: str, chance: Random) -> tuple[Any, ...]:
    return ()


def _number(chance: Random) -> int:
    """The number that selects a member."""
    return chance.randrange(100)


def _member(kind: str, chance: Random) -> tuple[Any, ...]:
    return (_number(chance),)


def _replicas(kind: str, chance: Random) -> tuple[Any, ...]:
    return (chance.choice((0, 1, 2, 3, 4, 5, 6, 8)),)


def _annotation(kind: str, chance: Random) -> tuple[Any, ...]:
    if chance.random() < 0.8:
        return features.some_annotation(kind, chance)
    return chance.choice(features.features_of(kind)), None


def _disks(kind: str, chance: Random) -> tuple[Any, ...]:
    disks, size = chance.choice(((), ("d",), ("d", "e"), ("f",))), chance.choice(("1Gi", "2Gi"))
    return disks, size, _image(chance) if chance.random() < 0.3 else None


def _live(kind: str, chance: Random) -> tuple[Any, ...]:
    sockets, zone = chance.choice((1, 2, 4)), chance.choice(("a", "b"))
    return sockets, zone, chance.sample(("more", "most"), chance.choice((0, 0, 1, 2)))


def _crash(kind: str, chance: Random) -> tuple[Any, ...]:
    return chance.randrange(2), int(10 ** chance.uniform(0, 3.2)), round(chance.uniform(0.5, 30), 1)


_ACCIDENTS: Final = ("hang", "hang", "crash", "finish", "recover")
_COMMON: Final[dict[str, tuple[float, _Arguments]]] = {
    "scale": (7, _replicas),
    "scale_as_foretold": (5, _replicas),
    "template": (14, lambda kind, chance: (_image(chance),)),
    "annotate": (12, _annotation),
    "change_field": (6, features.some_field),
    # The time of `busy-until` counts from the beginning of the life's busy part.
    "mark": (8, lambda kind, chance: (_number(chance), *features.some_mark(chance, BEGIN))),
    "unmark": (4, _member),
    "answer_drains": (5, _alone),
    "delete_member": (4, lambda kind, chance: (_number(chance), chance.choice(("Background", "Foreground")))),
    "delete_vmi": (3, _member),
    "delete_owner": (1, lambda kind, chance: (chance.choice(("Background", "Foreground", "Orphan")),)),
    "detach": (1, _member),
    "relabel": (1, _member),
    "accident": (8, lambda kind, chance: (_number(chance), chance.choice(_ACCIDENTS))),
    "lose_node": (3, lambda kind, chance: (chance.choice(NODES),)),
    "return_node": (3, lambda kind, chance: (chance.choice(NODES), chance.random() < 0.5)),
    "crash": (2, lambda kind, chance: (chance.randrange(2), round(chance.uniform(0.5, 30), 1))),
    "crash_at_step": (4, _crash),
    "evict": (3, _member),
    "suspend": (2, lambda kind, chance: (chance.randrange(2), round(chance.uniform(5, 60), 1))),
    "terminate": (1, lambda kind, chance: (chance.randrange(2),)),
    "protect_all": (1, _alone),
    "undo": (4, _alone),
    "hold_drains": (1, lambda kind, chance: (chance.choice((names.PROTECT, names.BUSY_UNTIL)),)),
    "bad_second": (1, lambda kind, chance: (chance.choice(NODES), _number(chance))),
    "grace": (1, lambda kind, chance: (chance.choice((30, 3600, 2**63 - 1)),)),
    "drift": (0.3, _alone),
    "try_templates": (0.3, lambda kind, chance: (chance.choice(BAD), 6)),
}
"""For each act: how often it is chosen among the others, and its arguments."""

_POOL_ACTS: Final = {
    **_COMMON,
    "change_disks": (4, _disks),
    "live_change": (4, _live),
    "switch_vm": (2, lambda kind, chance: (_number(chance), chance.choice(("Halted", "Always")))),
    "snapshot": (1, _member),
    "delete_claim": (1, _member),
    "pause_vm": (1, _member),
    "static_claim": (1, lambda kind, chance: (chance.randrange(8),)),
    "claim": (3, lambda kind, chance: (_number(chance), chance.choice((None, 5, 30, 120)))),
    "edit_grace": (1, lambda kind, chance: (_number(chance), chance.choice((30, 3600)))),
    "scale_huge": (0.2, _alone),
}
_SET_ACTS: Final = {**_COMMON, "adopt": (1, _alone), "pause_vm": (1, _member)}


def _image(chance: Random) -> str:
    return chance.choice(chance.choice((GOOD, GOOD, GOOD, BAD, BAD, (SICK, JOB))))


def _some_faults(chance: Random) -> Iterator[Act]:
    for _ in range(chance.randint(1, 4)):
        at = round(chance.uniform(BUSY_FROM_S, BUSY_UNTIL_S - MARGIN_S), 1)
        [kind] = chance.choices(tuple(_FAULTS), [1 + len(targets) / 6 for _, _, targets in _FAULTS.values()])
        longest_s, rate, targets = _FAULTS[kind]
        lasts_s = round(min(chance.uniform(1, longest_s), BUSY_UNTIL_S - at), 1)
        target = chance.choice(targets) if targets else ""
        yield Act(at, "fault", (kind, lasts_s, rate, target))
        if kind == "older":
            yield Act(at + 0.5, "crash", ("", "", chance.randrange(2), 0.5))


def _hidden_faults(chance: Random, owner: tuple[str, str]) -> Iterator[Act]:
    """Faults that caches and clocks do not show. They have a generator of their own."""
    for what, (longest_s, values) in _HIDDEN.items():
        if chance.random() < 0.3:
            at = round(chance.uniform(BUSY_FROM_S, BUSY_UNTIL_S - MARGIN_S), 1)
            lasts_s = round(min(chance.uniform(1, longest_s), BUSY_UNTIL_S - at), 1)
            rate, target = chance.choice(values)
            if what == "sleep":
                yield Act(at, "suspend", (*owner, int(target), lasts_s, True))
            else:
                yield Act(at, "fault", (what, lasts_s, rate, target))


def _restores(chance: Random, owners: list[tuple[str, str]]) -> Iterator[Act]:
    """A pool is lost with its VMs, and a backup tool makes them again. It has a generator of its own."""
    pools = [owner for owner in owners if owner[0] == "pool"]
    if pools and chance.random() < 0.1:
        at = round(chance.uniform(60, BUSY_UNTIL_S - 90), 1)
        yield Act(at, "restore", (*chance.choice(pools), chance.random() < 0.3, chance.random() < 0.5))


_HIDDEN: Final[dict[str, tuple[float, tuple[tuple[float, str], ...]]]] = {
    "stall-list": (300, ((0.7, ""),)),
    "missed": (120, ((0.7, "virtualmachines"), (0.7, "virtualmachineinstances"))),
    "unreadable": (300, ((1.0, "virtualmachines"), (1.0, "virtualmachineinstances"))),
    "doubled": (120, ((0.7, ""),)),
    "expired": (6, ((1.0, ""),)),
    "clock": (3, ((1.0, "0"), (1.0, "1"), (-1.0, "0"), (-1.0, "1"))),
    "sleep": (60, ((1.0, "0"), (1.0, "1"))),
}
"""For each kind of hidden fault: the longest time in seconds, and the rates and targets of which one is chosen. For
`clock`, the rate is the direction of the jump, and the target is the number of a controller. After a longer jump, the
short limits of the specs are over before a VM has started.
"""

_PLURALS: Final = (
    "virtualmachines",
    "virtualmachineinstances",
    "virtualmachinepools",
    "virtualmachineinstancereplicasets",
    "controllerrevisions",
)
REFUSABLE: Final = (
    *(f"create {each}" for each in (*_PLURALS[:2], "controllerrevisions", "poddisruptionbudgets", "events")),
    *(f"delete {each}" for each in _PLURALS[:2]),
    *(f"patch {each}" for each in (*_PLURALS[:4], *(f"{owner}/status" for owner in _PLURALS[2:4]))),
    "patch persistentvolumeclaims",
    "update virtualmachines/restart",
    *(f"patch {each} vmherd.dev/draining" for each in _PLURALS[:2]),
    *(f"patch {_PLURALS[2]} vmherd.dev/{each}" for each in ("partition-step", "rolled-back", "healed")),
    f"patch {_PLURALS[2]} vmherd.dev/ready-revision",
    f"patch {_PLURALS[3]} vmherd.dev/rolled-back",
)
STRIPPABLE: Final = (
    "vmherd.dev/template-hash", "kubevirt.io/vm-pool-revision-name", "vmherd.dev/draining", "vmherd.dev/healed",
    "vmherd.dev/rolled-back", "vmherd.dev/partition-step", "vmherd.dev/partition-revision",
    "vmherd.dev/ready-revision", "vmherd.dev/recreated", "vmherd.dev/early-failures", "vmherd.dev/pool-uid",
    "vmherd.dev/adopted-template", "vmherd.dev/drained", "vmherd.dev/in-service", "vmherd.dev/kept-for",
    "vmherd.dev/released", "vmherd.dev/scouted", "vmherd.dev/standby-state", "vmherd.dev/substitute",
    "vmherd.dev/unready", "vmherd.dev/used-for", "app",
)  # fmt: skip
_FAULTS: Final[dict[str, tuple[float, float, tuple[str, ...]]]] = {
    "lost": (30, 0.3, ()),
    "refused-connection": (20, 1.0, ()),
    "slow": (60, 0.3, ()),
    "throttle": (30, 0.5, ()),
    "error": (30, 0.4, ()),
    "reset": (1, 1.0, ()),
    "silent": (1, 1.0, _PLURALS),
    "stale": (60, 1.0, ()),
    "stall": (20, 1.0, ()),
    "expired": (1, 1.0, ()),
    "refuse": (200, 1.0, REFUSABLE),
    "strip": (200, 1.0, STRIPPABLE),
    "quota": (100, 1.0, ()),
    "relabel": (200, 1.0, features.RELABELLED),
    "older": (25, 0.6, ()),
    "webhook": (
        150,
        1.0,
        tuple(f"{what} {plural}" for what in ("down", "deny", "label", "spec") for plural in _PLURALS[:2]),
    ),
}
"""For each kind of fault: the longest time in seconds, the rate, and the targets."""
