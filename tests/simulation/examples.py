"""The shortest stories of faults that are mended. Each violated the sentence of its name, and violates none now. If a
sentence has several stories, their names have a word more.

python -m tests.simulation --example a_good_template_is_not_rolled_back
"""

from typing import Any, Final

from controller.kubevirt import annotations as names
from tests.simulation.story import Act, Story
from tests.simulation.world import Options


def birth(kind: str, name: str = "web", *, annotations: dict[str, str] | None = None, **given: Any) -> Act:
    """The creation of a set or pool of three members."""
    usual: dict[str, Any] = {
        "replicas": 3,
        "app": name,
        "image": "v1",
        "disks": (),
        "strategy": "Always",
        "shares_disks": False,
        "in_service": False,
        "annotations": annotations or {},
        "fields": {},
    }
    return Act(3.0, "create", (kind, name, usual | given))


def _act(at: float, what: str, *args: Any) -> Act:
    return Act(at, what, args)


def _refusal(at: float, target: str, seconds: float = 250) -> Act:
    return _act(at, "fault", "refuse", seconds, 1.0, target)


_ONE: Final = {"maxUnavailable": 1}
_DRAIN: Final = {names.DRAIN_SECONDS: "60"}
_RETURN: Final = {names.ROLLBACK: "stalled", names.PROGRESS_DEADLINE: "20"}
_ROLLING: Final = {names.ROLLING_UPDATE: "maxUnavailable=1"}


def _left(kind: str, what: str, *args: Any) -> tuple[Act, ...]:
    """A scale-in, and during its drains members leave in another way."""
    drains = birth(kind, in_service=True, annotations={names.DRAIN_SECONDS: "250"})
    return (drains, _act(50, "scale", kind, "web", 1), *(_act(60, what, kind, "web", *each) for each in args))


def _ended_unseen(kind: str, plural: str) -> tuple[Act, ...]:
    """A deletion in the foreground that a silent watch does not show."""
    owner = birth(kind, annotations={names.DISRUPTION_BUDGET: "1"})
    return (owner, _act(40, "fault", "silent", 1.0, 1.0, plural), _act(42, "delete_owner", kind, "web", "Foreground"))


_ACTS: Final[dict[str, tuple[Act, ...]]] = {
    "a_disk_of_a_user_stays": (
        birth("pool", replicas=1, disks=("d",)),
        _act(30, "static_claim", "pool", "web", 1),
        _act(40, "scale", "pool", "web", 2),
        _act(80, "scale", "pool", "web", 0),
    ),
    "why_tells_what_comes_next": (
        birth("pool", replicas=5, annotations={names.REPLACE_UNREADY_AFTER: "30"}),
        *(_act(50 + each, "accident", "pool", "web", each, "hang") for each in range(5)),
    ),
    "what_waits_is_told": (
        birth("set", annotations={names.ROLLING_UPDATE: "maxSurge=1,maxUnavailable=0"}),
        _act(40, "protect_all", "set", "web"),
        _act(60, "template", "set", "web", "v2"),
    ),
    "what_waits_is_told-lost": (
        birth("set", replicas=6, annotations={}),
        _act(30, "lose_node", "set", "web", "node-1"),
        _act(30, "lose_node", "set", "web", "node-2"),
    ),
    "few_are_out_of_service": (
        birth("set", in_service=True, annotations=_DRAIN | _ROLLING),
        _act(30, "template", "set", "web", "v2"),
        *(_act(33 + 3 * each, "hold_drains", "set", "web", names.BUSY_UNTIL) for each in range(4)),
    ),
    "a_good_template_is_not_rolled_back": (
        birth("pool", annotations=_RETURN | {names.DRAIN_SECONDS: "20"}, fields=_ONE),
        _act(40, "accident", "pool", "web", 1, "hang"),
        _act(60, "template", "pool", "web", "v2"),
    ),
    "a_return_is_quick": (
        birth("pool", disks=("d",), annotations=_RETURN, fields=_ONE),
        _act(40, "change_disks", "pool", "web", ("d",), "2Gi", "hang"),
    ),
    "steps_are_not_skipped": (
        birth("pool", replicas=4, annotations={names.PARTITION: "50%:250s,0"}),
        _act(40, "template", "pool", "web", "v2"),
        _act(60, "mark", "pool", "web", 0, names.REMOVE, "true"),
        _act(60.1, "mark", "pool", "web", 1, names.REMOVE, "true"),
        _act(61, "scale", "pool", "web", 2),
        _act(80, "scale", "pool", "web", 6),
    ),
    "grouping_does_not_matter": (
        birth("pool", replicas=8, annotations={names.SUBSTITUTE_LOST_AFTER: "5"}),
        *(_act(30, "edit_grace", "pool", "web", each, 3600) for each in (0, 2, 4, 6)),
        _act(70, "lose_node", "pool", "web", "node-3"),
        *(_act(76, "delete_vmi", "pool", "web", each) for each in range(8)),
    ),
    "a_refusal_is_told": (
        birth("pool", annotations={names.DRAIN_SECONDS: "5"}),
        _refusal(40, "patch virtualmachines"),
        _act(50, "scale", "pool", "web", 2),
    ),
    "a_refusal_is_told-revision": (
        birth("set", annotations=_ROLLING),
        _refusal(40, "create controllerrevisions", 100),
        _act(50, "template", "set", "web", "v2"),
    ),
    "a_refusal_is_told-stripped": (
        birth("pool"),
        _act(40, "fault", "strip", 200.0, 1.0, "kubevirt.io/vm-pool-revision-name"),
        _act(50, "template", "pool", "web", "v2"),
    ),
    "an_event_follows_its_note": (
        birth("pool", annotations=_RETURN, fields=_ONE),
        _refusal(30, "patch virtualmachinepools"),
        _act(40, "template", "pool", "web", "hang"),
    ),
    "a_template_that_worked_stays": (birth("pool", replicas=1), _act(30, "try_templates", "pool", "web", "hang", 6)),
    "who_serves_is_in_service": (
        birth("pool", in_service=True, annotations={names.DRAIN_SECONDS: "5"}, fields=_ONE),
        _act(40, "template", "pool", "web", "v2"),
        _refusal(64, "patch virtualmachines", 30),
    ),
    "a_refusal_is_not_hammered-unseen": _ended_unseen("pool", "virtualmachinepools"),
    "a_refusal_is_not_hammered-unseen-set": _ended_unseen("set", "virtualmachineinstancereplicasets"),
    "a_refusal_is_not_hammered-stripped": (
        birth("set", annotations=_ROLLING),
        _act(40, "fault", "strip", 100.0, 1.0, names.TEMPLATE_HASH),
        _act(50, "template", "set", "web", "v2"),
        _act(90, "template", "set", "web", "v3"),
    ),
    **{
        f"a_refusal_is_not_hammered-relabelled-{number}": (
            birth(kind, annotations=_ROLLING if kind == "set" else {}, fields=_ONE if kind == "pool" else {}),
            _act(30, "fault", "relabel", 220.0, 1.0, target),
            _act(50, "template", kind, "web", "v2"),
        )
        for number, (kind, target) in enumerate(
            (
                ("set", f"virtualmachineinstances {names.TEMPLATE_HASH} bogus"),
                ("pool", f"virtualmachineinstances {names.REVISION_NAME}"),
                ("pool", f"virtualmachines {names.REVISION_NAME} bogus"),
            )
        )
    },
    "nothing_of_ours_is_left-released": _left("pool", "relabel", (0,), (1,), (2,)),
    "nothing_of_ours_is_left-detached": _left("pool", "detach", (0,), (0,), (0,)),
    "nothing_of_ours_is_left-released-vmi": _left("set", "relabel", (0,), (1,), (2,)),
    "nothing_of_ours_is_left-orphaned-vmi": _left("set", "delete_owner", ("Orphan",)),
    "an_undo_returns_to_the_template_before": (
        birth("set", annotations=_ROLLING),
        _act(40, "template", "set", "web", "v2"),
        _act(80, "undo", "set", "web"),
        _act(130, "template", "set", "web", "v3"),
    ),
    "an_undo_returns_to_the_template_before-undone": (
        birth("pool"),
        _act(40, "template", "pool", "web", "v2"),
        _act(40.4, "undo", "pool", "web"),
        _act(90, "template", "pool", "web", "v3"),
        *(_act(at, "undo", "pool", "web") for at in (140, 141, 200, 250)),
    ),
}

EXAMPLES: Final = {
    name: Story(f"example {name}", Options(syncs_labels=False, standby=False), acts) for name, acts in _ACTS.items()
}
