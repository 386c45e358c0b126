"""The settings of the simulation, from options and from annotations `sim.vmherd.dev/...`. See docs/sandbox.md.

A VMI gets the annotations from its template, and a new PVC `resize` and `resize-after` from its DataVolume. If a value
cannot be parsed, the default is used and a warning is returned.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_args

import click
from msgspec import Struct, structs

from controller.apimachinery.field_error import quoted
from controller.config.types import seconds_in

READY_AFTER: Final = "sim.vmherd.dev/ready-after"
"""The annotation with the duration from the creation of a VMI to Ready, or of a DataVolume to Succeeded."""

BEHAVIOR: Final = "sim.vmherd.dev/behavior"
SHUTDOWN_AFTER: Final = "sim.vmherd.dev/shutdown-after"
"""The annotation with the time from the deletion of a VMI to its end, by default 0 seconds.

With slow-shutdown, the default is the spec's `terminationGracePeriodSeconds`, but at most 30 seconds, and 30 seconds if
it is 0 or missing.
"""

TIME_SCALE: Final = "sim.vmherd.dev/time-scale"
DETAIL: Final = "sim.vmherd.dev/detail"
RESIZE: Final = "sim.vmherd.dev/resize"
RESIZE_AFTER: Final = "sim.vmherd.dev/resize-after"
Resize: TypeAlias = Literal["normal", "hang", "fail"]

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
    "lost",
    "normal",
]
BEHAVIORS: Final[tuple[Behavior, ...]] = get_args(Behavior)

SLOW_SHUTDOWN_S: Final = 30.0
LONGEST_S: Final = 24 * 3600.0


class SimulationSettings(Struct, frozen=True, kw_only=True):
    """The settings of one object. `warnings` has a text for each annotation whose value cannot be parsed."""

    behavior: Behavior = "normal"
    ready_after_s: float = 0.3
    shutdown_after_s: float = 0.0
    time_scale: float = 1.0
    detail: Detail = "short"
    resize: Resize = "normal"
    resize_after_s: float = 0.3
    warnings: tuple[str, ...] = ()


DEFAULT: Final = SimulationSettings()


def read_settings(
    annotations: Mapping[str, str], *, grace_s: int = 0, defaults: SimulationSettings = DEFAULT
) -> SimulationSettings:
    """Parse the annotations of an object whose termination grace period is `grace_s` seconds, or 0."""
    texts = tuple(annotations.get(name) for name in _ANNOTATIONS)
    return _parse(texts, grace_s, defaults) if any(text is not None for text in texts) else defaults


def scale_of(text: str) -> float | None:
    try:
        scale = float(text)
    except ValueError:
        return None
    return scale if 0 <= scale <= 1 else None


def _duration(text: str) -> float | None:
    seconds = seconds_in(text)
    return seconds if seconds is not None and seconds <= LONGEST_S else None


def _one_of(known: Sequence[str]) -> tuple[Callable[[str], str | None], str]:
    """Return the function that parses one of these words, and the text about a wrong word."""
    return lambda text: text if text in known else None, f"allowed are {', '.join(known)}"


_A_DURATION: Final = (
    _duration,
    "expected a duration of at most 24h, such as 300ms, 2s or 1m30s; {:g}s is used instead",
)
_A_SCALE: Final = (scale_of, "expected a number from 0 to 1; {:g} is used instead")
_ANNOTATIONS: Final[Mapping[str, tuple[str, tuple[Callable[[str], Any], str]]]] = {
    BEHAVIOR: ("behavior", _one_of(BEHAVIORS)),
    READY_AFTER: ("ready_after_s", _A_DURATION),
    SHUTDOWN_AFTER: ("shutdown_after_s", _A_DURATION),
    TIME_SCALE: ("time_scale", _A_SCALE),
    DETAIL: ("detail", _one_of(DETAILS)),
    RESIZE: ("resize", _one_of(get_args(Resize))),
    RESIZE_AFTER: ("resize_after_s", _A_DURATION),
}
"""For each annotation, its setting, the function that parses the value, and the text about a wrong value."""


@lru_cache(maxsize=256)
def _parse(texts: tuple[str | None, ...], grace_s: int, defaults: SimulationSettings) -> SimulationSettings:
    settings, warnings = structs.asdict(defaults), []
    for (annotation, (name, (parse, wrong))), text in zip(_ANNOTATIONS.items(), texts, strict=True):
        value = None if text is None else parse(text)
        if value is not None:
            settings[name] = value
        elif text is not None:
            warnings.append(f"annotation {annotation} is {quoted(text)}: {wrong.format(settings[name])}")
        if name == "behavior" and settings[name] == "slow-shutdown":
            settings["shutdown_after_s"] = min(SLOW_SHUTDOWN_S, grace_s) if grace_s > 0 else SLOW_SHUTDOWN_S
    return SimulationSettings(**{**settings, "warnings": tuple(warnings)})


F = TypeVar("F", bound=Callable[..., Any])


def _scale(text: str) -> float:
    scale = scale_of(text)
    if scale is None:
        raise click.BadParameter("expected a number from 0 to 1")
    return scale


def simulation_options(command: F) -> F:
    """Add the options `--time-scale` and `--detail` to a command: the settings of objects without annotations."""
    detail = click.option(
        "--detail",
        type=click.Choice(DETAILS),
        default=DEFAULT.detail,
        help="full: show each write of KubeVirt; short: leave out states that do not last",
        show_default=True,
    )
    time_scale = click.option(
        "--time-scale",
        type=_scale,
        metavar="FLOAT",
        default=DEFAULT.time_scale,
        help="factor of KubeVirt's waiting times, from 0 to 1",
        show_default=True,
    )
    return time_scale(detail(command))
