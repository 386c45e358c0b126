"""The types of option values that click does not have. `read` raises ValueError with the end of "expected ..."."""

import ipaddress
import re
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any, Final, NamedTuple

import click

from controller.apimachinery.names import is_label, is_subdomain
from controller.apimachinery.quantities import parse_duration

_HOST = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9.]{0,251}[A-Za-z0-9])?", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{0,9})?", re.ASCII)
_SWITCH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


class Address(NamedTuple):
    """An empty host means all network interfaces. Port 0 means any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Value(click.ParamType[Any]):
    """A type of option values. `read` parses what a user has written. `show` is its inverse, for `--help`."""

    def __init__(self, name: str, read: Callable[[str], object], show: Callable[[Any], str] = str) -> None:
        self.name = name
        self.read = read
        self.show = show

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self.read(value)
        except ValueError as error:
            self.fail(f"{value!r} is invalid; expected {error}", param, ctx)


class OneOf(click.Choice[str]):
    """Users may write a choice in upper or lower case. The parsed value is spelled as in `choices`."""

    def __init__(self, *choices: str) -> None:
        super().__init__(choices, case_sensitive=False)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "|".join(self.choices)

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        return f"{value!r} is invalid; expected one of {', '.join(self.choices)}"


class Integer(click.IntRange):
    name = "integer"  # click then calls 'x' "not a valid integer", instead of "not a valid integer range"


DURATION: Final = "duration"


def duration(*, least_s: float = 0, most_s: float = inf, whole: bool = False, needs_unit: bool = False) -> Value:
    """A duration is in the format of Go or in seconds. With `whole`, only whole seconds are accepted, and with
    `needs_unit` no number alone: a user may mean minutes.
    """
    bound = f", {show_duration(least_s)} or more," if least_s else ""
    bound = f" from {show_duration(least_s)} to {show_duration(most_s)}," if most_s < inf else bound
    expected = f"a duration{' in whole seconds' if whole else ''}{bound} such as 15s or 1m30s"

    def read(text: str) -> float:
        seconds = seconds_in(text)
        is_bare = needs_unit and bool(_NUMBER.fullmatch(text))
        if seconds is None or is_bare or not least_s <= seconds <= most_s or (whole and seconds % 1):
            raise ValueError(expected)
        return seconds

    return Value(DURATION, read, show_duration)


def seconds_in(text: str) -> float | None:
    """Return the seconds of a duration, such as 90.0 for "1m30s" and "90", or None if the text is none."""
    if _NUMBER.fullmatch(text):
        return float(text)
    parsed = parse_duration(text)
    return None if parsed is None else parsed.total_seconds()


def show_duration(seconds: float) -> str:
    """Return seconds as a duration of Go: "1m30s" for 90.0, "500ms" for 0.5, and "0s" for 0."""
    if seconds % 1:
        return f"{seconds * 1000:.12g}ms" if seconds < 1 else f"{seconds:.12g}s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "m"), (rest, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count) or "0s"


def _read_switch(text: str) -> bool:
    value = _SWITCH.get(text.lower())
    if value is None:
        raise ValueError("true or false")
    return value


def _read_address(text: str) -> Address | None:
    if text == "0":
        return None
    host, colon, port = text.rpartition(":")
    if colon and port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535:
        if host.startswith("[") and host.endswith("]"):
            with suppress(ValueError):
                ipaddress.IPv6Address(host[1:-1])
                return Address(host[1:-1], int(port))
        elif not host or _HOST.fullmatch(host):
            return Address(host, int(port))
    raise ValueError("host:port, such as :8080 or 127.0.0.1:8080, or 0 to disable the server")


def _read_namespaces(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not all(is_label(name) for name in names):
        raise ValueError("names of namespaces, separated by commas, such as team-a,team-b")
    return names


def text_value(name: str, is_valid: Callable[[str], object], expected: str) -> Value:
    """Return an option type for the texts that `is_valid` accepts. `expected` describes them in an error message."""

    def read(text: str) -> str:
        if is_valid(text):
            return text
        raise ValueError(expected)

    return Value(name, read)


_A_NAMESPACE: Final = "the name of a namespace, such as vmherd-system"


FILE = click.Path(readable=False)
ON_OFF = Value("bool", _read_switch, lambda on: "on" if on else "off")
ADDRESS = Value("address", _read_address, lambda address: str(address) if address else "0")
NAMESPACE = text_value("namespace", is_label, _A_NAMESPACE)
ANY_NAMESPACE = text_value("namespace", lambda text: not text or is_label(text), _A_NAMESPACE)
NAMESPACES = Value("namespace,...", _read_namespaces)
OBJECT_NAME = text_value(
    "name", is_subdomain, "the name of an object: lowercase letters, digits, dashes and dots, such as vmherd"
)
GROUP = text_value(
    "group", lambda text: "." in text and is_subdomain(text), "the name of an API group, such as kubevirt.io"
)
