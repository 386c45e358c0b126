"""What the user wants to see simulated: the `sim.vmherd.dev/...` annotations, which VMIs get through their template.

DataVolumes and PVCs read them too, as far as they mean anything there: a DataVolume that is to `fail` does, one that is
`never-ready` stays in progress, and a PVC that is `never-ready` stays unbound. A VM passes `datavolume-error` on to the
DataVolumes that it makes.

A value that cannot be read stops nothing: the default is used, and a flaw says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Literal, TypeAlias, get_args

from msgspec import Struct

from controller.config.types import seconds_in

READY_AFTER: Final = "sim.vmherd.dev/ready-after"
"""How long a VMI takes from its creation to Ready=True, or a DataVolume to Succeeded."""

BEHAVIOR: Final = "sim.vmherd.dev/behavior"
"""How it misbehaves; one of `Behavior`."""

SHUTDOWN_AFTER: Final = "sim.vmherd.dev/shutdown-after"
"""How long it takes from its deletion until it is gone. Without it: no time, or, with the behavior slow-shutdown, 30
seconds, cut short by a `terminationGracePeriodSeconds` of the spec. One of 0, which example manifests have, cuts
nothing short: who asks for a slow shutdown wants to see one."""

Behavior: TypeAlias = Literal[
    "never-ready",
    "crash-loop",
    "image-error",
    "unschedulable",
    "pvc-missing",
    "datavolume-error",
    "finish",
    "fail",
    "unknown",
    "slow-shutdown",
    "normal",
]
BEHAVIORS: Final[tuple[Behavior, ...]] = get_args(Behavior)

READY_AFTER_S: Final = 0.3
SLOW_SHUTDOWN_S: Final = 30.0
LONGEST_S: Final = 24 * 3600.0
_QUOTED_LENGTH: Final = 64


class Wishes(Struct, frozen=True, kw_only=True):
    """The annotations, understood. `shutdown_after_s` is 0 for a VMI that goes as soon as it is deleted."""

    behavior: Behavior = "normal"
    ready_after_s: float = READY_AFTER_S
    shutdown_after_s: float = 0.0
    flaws: tuple[str, ...] = ()


DEFAULT: Final = Wishes()


def read_wishes(annotations: Mapping[str, str], *, grace_s: int = 0) -> Wishes:
    """Understand an object's annotations. `grace_s` is its grace period, 0 for none."""
    ready_after, behavior = annotations.get(READY_AFTER), annotations.get(BEHAVIOR)
    shutdown_after = annotations.get(SHUTDOWN_AFTER)
    if ready_after is None and behavior is None and shutdown_after is None:
        return DEFAULT
    return _understand(ready_after, behavior, shutdown_after, grace_s)


@lru_cache(maxsize=256)
def _understand(ready_after: str | None, behavior: str | None, shutdown_after: str | None, grace_s: int) -> Wishes:
    flaws: list[str] = []
    kind = _behavior(behavior, flaws)
    slow_s = min(SLOW_SHUTDOWN_S, grace_s) if grace_s > 0 else SLOW_SHUTDOWN_S
    shutdown_s = slow_s if kind == "slow-shutdown" else 0.0
    return Wishes(
        behavior=kind,
        ready_after_s=_duration(READY_AFTER, ready_after, READY_AFTER_S, flaws),
        shutdown_after_s=_duration(SHUTDOWN_AFTER, shutdown_after, shutdown_s, flaws),
        flaws=tuple(flaws),
    )


def _behavior(text: str | None, flaws: list[str]) -> Behavior:
    for known in BEHAVIORS:
        if text == known:
            return known
    if text is not None:
        flaws.append(f"annotation {BEHAVIOR} is {_quoted(text)}: it must be one of {', '.join(BEHAVIORS)}")
    return "normal"


def _duration(annotation: str, text: str | None, default_s: float, flaws: list[str]) -> float:
    if text is None:
        return default_s
    seconds = seconds_in(text)
    if seconds is None or seconds > LONGEST_S:
        flaws.append(
            f"annotation {annotation} is {_quoted(text)}: it must be a duration such as 300ms, 2s or 1m30s, "
            f"at most 24h, so it counts as {default_s:g}s"
        )
        return default_s
    return seconds


def _quoted(text: str) -> str:
    return f'"{text}"' if len(text) <= _QUOTED_LENGTH else f'"{text[:_QUOTED_LENGTH]}..."'
