"""This module reads the settings of the simulation from the annotations `sim.vmherd.dev/...` of an object.

A VMI gets the annotations from its template. DataVolumes and PVCs can have the annotations too. A DataVolume with the
behavior `fail` fails. A DataVolume with the behavior `never-ready` stays in progress. A PVC with the behavior
`never-ready` stays unbound. With the behavior `datavolume-error` in a VM's template, the VM's DataVolumes get the
behavior `fail`. The annotations `resize` and `resize-after` belong to a PVC, or to a DataVolume, which hands them on to
its new PVC.

The annotations `time-scale` and `detail` are annotations of a VM's template. If they are absent, the defaults of the
simulator apply.

If the value of an annotation cannot be parsed, the default is used and a warning is returned.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Literal, TypeAlias, TypeVar, get_args

from msgspec import Struct

from controller.config.types import seconds_in

T = TypeVar("T")

READY_AFTER: Final = "sim.vmherd.dev/ready-after"
"""The annotation with the duration from the creation of a VMI to the condition Ready.

For a DataVolume, the duration ends with the phase Succeeded.
"""

BEHAVIOR: Final = "sim.vmherd.dev/behavior"
"""The annotation with the behavior of the simulated object. The value is one of `Behavior`."""

SHUTDOWN_AFTER: Final = "sim.vmherd.dev/shutdown-after"
"""The annotation with the time from the deletion of a VMI to its end.

The default is 0 seconds. If the VMI simulates the behavior slow-shutdown, the default is the spec's
`terminationGracePeriodSeconds`, but at most 30 seconds. If `terminationGracePeriodSeconds` is 0 or missing, such a VMI
needs 30 seconds.
"""

TIME_SCALE: Final = "sim.vmherd.dev/time-scale"
"""The annotation with a factor for KubeVirt's waiting times.

The value is a number from 0 to 1. With 0.05, the backoff after a failed start is 20 times shorter than in KubeVirt.
"""

DETAIL: Final = "sim.vmherd.dev/detail"
"""The annotation with the level of detail of the simulator's writes. The value is one of `Detail`.

With `full`, the simulator writes each state of KubeVirt. With `short`, the simulator leaves out states that do not
last.
"""

RESIZE: Final = "sim.vmherd.dev/resize"
"""The annotation with the result of a resize of a PVC. The value is one of `Resize`."""

RESIZE_AFTER: Final = "sim.vmherd.dev/resize-after"
"""The annotation with the duration of a resize of a PVC."""

Resize: TypeAlias = Literal["normal", "hang", "fail"]
RESIZES: Final[tuple[Resize, ...]] = get_args(Resize)

Detail: TypeAlias = Literal["short", "full"]
DETAILS: Final[tuple[Detail, ...]] = get_args(Detail)

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
    "paused",
    "io-error",
    "normal",
]
BEHAVIORS: Final[tuple[Behavior, ...]] = get_args(Behavior)

READY_AFTER_S: Final = 0.3
"""The default of `sim.vmherd.dev/ready-after` in seconds."""

RESIZE_AFTER_S: Final = 0.3
"""The default of `sim.vmherd.dev/resize-after` in seconds."""

SLOW_SHUTDOWN_S: Final = 30.0
"""The default of `sim.vmherd.dev/shutdown-after` in seconds for the behavior slow-shutdown."""

LONGEST_S: Final = 24 * 3600.0
"""The longest duration in seconds that an annotation may have."""

_QUOTED_LENGTH: Final = 64


class SimulationSettings(Struct, frozen=True, kw_only=True):
    """The settings of one object. `warnings` has a text for each annotation whose value cannot be parsed.

    If `shutdown_after_s` is 0, the finalizers of a deleted VMI are removed at once.
    """

    behavior: Behavior = "normal"
    ready_after_s: float = READY_AFTER_S
    shutdown_after_s: float = 0.0
    time_scale: float = 1.0
    detail: Detail = "short"
    resize: Resize = "normal"
    resize_after_s: float = RESIZE_AFTER_S
    warnings: tuple[str, ...] = ()


DEFAULT: Final = SimulationSettings()
NAMES: Final = (READY_AFTER, BEHAVIOR, SHUTDOWN_AFTER, TIME_SCALE, DETAIL, RESIZE, RESIZE_AFTER)


def read_settings(
    annotations: Mapping[str, str], *, grace_s: int = 0, defaults: SimulationSettings = DEFAULT
) -> SimulationSettings:
    """Parse the annotations of an object and return the settings.

    `grace_s` is the termination grace period of the object in seconds, or 0 if the object has no grace period.
    `defaults` are the settings of an object without annotations.
    """
    texts = tuple(annotations.get(name) for name in NAMES)
    return defaults if texts == (None,) * len(NAMES) else _parse(texts, grace_s, defaults)


@lru_cache(maxsize=256)
def _parse(texts: tuple[str | None, ...], grace_s: int, defaults: SimulationSettings) -> SimulationSettings:
    ready_after, behavior, shutdown_after, time_scale, detail, resize, resize_after = texts
    warnings: list[str] = []
    kind = _one_of(BEHAVIORS, BEHAVIOR, behavior, defaults.behavior, warnings)
    slow_s = min(SLOW_SHUTDOWN_S, grace_s) if grace_s > 0 else SLOW_SHUTDOWN_S
    shutdown_s = slow_s if kind == "slow-shutdown" else defaults.shutdown_after_s
    return SimulationSettings(
        behavior=kind,
        ready_after_s=_duration(READY_AFTER, ready_after, defaults.ready_after_s, warnings),
        shutdown_after_s=_duration(SHUTDOWN_AFTER, shutdown_after, shutdown_s, warnings),
        time_scale=_scale(time_scale, defaults.time_scale, warnings),
        detail=_one_of(DETAILS, DETAIL, detail, defaults.detail, warnings),
        resize=_one_of(RESIZES, RESIZE, resize, defaults.resize, warnings),
        resize_after_s=_duration(RESIZE_AFTER, resize_after, defaults.resize_after_s, warnings),
        warnings=tuple(warnings),
    )


def scale_of(text: str) -> float | None:
    """Return the time scale, or None if the text is not a number from 0 to 1."""
    try:
        scale = float(text)
    except ValueError:
        return None
    return scale if 0 <= scale <= 1 else None


def _one_of(known: tuple[T, ...], annotation: str, text: str | None, default: T, warnings: list[str]) -> T:
    for each in known:
        if text == each:
            return each
    if text is not None:
        warnings.append(f"annotation {annotation} is {_quoted(text)}: allowed are {', '.join(map(str, known))}")
    return default


def _scale(text: str | None, default: float, warnings: list[str]) -> float:
    scale = default if text is None else scale_of(text)
    if scale is None:
        warnings.append(
            f"annotation {TIME_SCALE} is {_quoted(str(text))}: expected a number from 0 to 1; "
            f"{default:g} is used instead"
        )
        return default
    return scale


def _duration(annotation: str, text: str | None, default_s: float, warnings: list[str]) -> float:
    if text is None:
        return default_s
    seconds = seconds_in(text)
    if seconds is None or seconds > LONGEST_S:
        warnings.append(
            f"annotation {annotation} is {_quoted(text)}: expected a duration of at most 24h, such as 300ms, 2s or "
            f"1m30s; {default_s:g}s is used instead"
        )
        return default_s
    return seconds


def _quoted(text: str) -> str:
    return f'"{text}"' if len(text) <= _QUOTED_LENGTH else f'"{text[:_QUOTED_LENGTH]}..."'
