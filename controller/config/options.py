"""What a setting may be: how text from a flag or a variable becomes a value, and how a value is shown.

A `Kind` turns text into a value or raises `Unfit`, whose words say what would be right. An `Option` ties a kind to a
field of the configuration, from whose name its flag and its variable follow. Pure: text in, values out.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec import Struct

VARIABLE_PREFIX = "VMHERD_"

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_HOST = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9.]{0,251}[A-Za-z0-9])?", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,12}(\.[0-9]{0,9})?", re.ASCII)
_DURATION_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{0,9})?)(ms|us|µs|s|m|h)", re.ASCII)
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_SWITCH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


class Unfit(ValueError):
    """The text is no value of its kind. `str()` completes the sentence "expected ..."."""


class Address(NamedTuple):
    """Where a server listens. No host means every interface, port 0 any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Kind(Struct, frozen=True, kw_only=True):
    """How values of one sort are read and shown. `show` is the inverse of `read`."""

    read: Callable[[str], object]
    metavar: str
    # What `show` takes is what `read` of the same kind gives, which the type system has no word for in a table.
    show: Callable[[Any], str] = str
    switch: bool = False  # also `--no-...`, and the flag alone means true
    repeats: bool = False  # the flag may be given again, and each adds to the list


class Option(Struct, frozen=True):
    """One setting: a field of the configuration, how its text is read, and what `--help` says of it."""

    field: str
    kind: Kind
    help: str
    unset: str = ""  # shown instead of the default, where the default is a rule and no value
    short: str = ""  # a second spelling of the flag, such as "-n"
    flag_only: bool = False  # no variable: it is about this one call

    @property
    def flag(self) -> str:
        """`--lease-duration` for the field `lease_duration_s`: a flag's value has its unit with it."""
        return "--" + self.field.removesuffix("_s").replace("_", "-")

    @property
    def opposite(self) -> str:
        """`--no-leader-elect` for the switch `leader_elect`."""
        return "--no-" + self.flag.removeprefix("--")

    @property
    def variable(self) -> str:
        """`VMHERD_LEASE_DURATION` for the field `lease_duration_s`."""
        return VARIABLE_PREFIX + self.flag.removeprefix("--").replace("-", "_").upper()


def whole_number(*, least: int, most: int) -> Kind:
    def read(text: str) -> int:
        if text.isascii() and text.isdigit() and len(text) <= 12 and least <= int(text) <= most:
            return int(text)
        raise Unfit(f"a whole number from {least} to {most}")

    return Kind(read=read, metavar="N")


def _read_rate(text: str) -> float:
    if _NUMBER.fullmatch(text):
        return float(text)
    raise Unfit("a number, 0 or more")


def duration(*, least_s: float = 0, whole: bool = False) -> Kind:
    """A duration as Go programs take it (`1m30s`, `500ms`), or plain seconds; `whole` allows whole seconds alone."""
    bound = f", {show_duration(least_s)} or more" if least_s else ""
    words = f"a duration{' of whole seconds' if whole else ''} such as 15s or 1m30s{bound}"

    def read(text: str) -> float:
        seconds = seconds_in(text)
        if seconds is None or seconds < least_s or (whole and seconds % 1):
            raise Unfit(words)
        return seconds

    return Kind(read=read, metavar="DURATION", show=show_duration)


def seconds_in(text: str) -> float | None:
    """The seconds of a Go-style duration, such as 90.0 of "1m30s"; None where it is none."""
    if _NUMBER.fullmatch(text):
        return float(text)
    parts = _DURATION_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def show_duration(seconds: float) -> str:
    """The shortest usual way to write a duration: 90.0 is "1m30s", 0.5 is "500ms", 0 is "0s"."""
    if seconds % 1:
        return f"{seconds * 1000:.12g}ms" if seconds < 1 else f"{seconds:.12g}s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "m"), (rest, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count) or "0s"


def _read_switch(text: str) -> bool:
    value = _SWITCH.get(text.lower())
    if value is None:
        raise Unfit("true or false")
    return value


def one_of(*choices: str) -> Kind:
    """One of these, in whatever case; as it is spelled here."""
    spelled = {choice.lower(): choice for choice in choices}

    def read(text: str) -> str:
        if text.lower() in spelled:
            return spelled[text.lower()]
        raise Unfit(f"one of {', '.join(choices)}")

    return Kind(read=read, metavar="|".join(choices))


def _read_address(text: str) -> Address | None:
    if text == "0":
        return None
    host, colon, port = text.rpartition(":")
    if colon and port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535:
        bracketed = host.startswith("[") and host.endswith("]")
        if bracketed and _is_ipv6(host[1:-1]):
            return Address(host[1:-1], int(port))
        if not host or (_HOST.fullmatch(host) and not bracketed):
            return Address(host, int(port))
    raise Unfit("host:port, such as :8080 or 127.0.0.1:8080, or 0 for none")


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def is_label(text: str) -> bool:
    """Whether this can be the name of a namespace (an RFC 1123 label)."""
    return _LABEL.fullmatch(text) is not None


def is_subdomain(text: str) -> bool:
    """Whether this can be the name of most objects (an RFC 1123 subdomain)."""
    return len(text) <= 253 and all(is_label(part) for part in text.split("."))


def _read_namespaces(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not all(is_label(name) for name in names):
        raise Unfit("names of namespaces with commas between them, such as team-a,team-b")
    return names


def _read_namespace(text: str) -> str:
    if is_label(text):
        return text
    raise Unfit("the name of a namespace, such as vmherd-system")


def _read_any_namespace(text: str) -> str:
    return _read_namespace(text) if text else ""


def _read_object_name(text: str) -> str:
    if is_subdomain(text):
        return text
    raise Unfit("the name of an object: small letters, digits, dashes and dots, such as vmherd")


def _read_group(text: str) -> str:
    if "." in text and is_subdomain(text):
        return text
    raise Unfit("the name of an API group, such as kubevirt.io")


TEXT = Kind(read=str, metavar="NAME")
PATH = Kind(read=str, metavar="FILE")
RATE = Kind(read=_read_rate, metavar="N", show=lambda rate: f"{rate:g}")
SWITCH = Kind(read=_read_switch, metavar="BOOL", show=lambda on: "on" if on else "off", switch=True)
ADDRESS = Kind(read=_read_address, metavar="ADDRESS", show=lambda address: str(address) if address else "0")
NAMESPACES = Kind(read=_read_namespaces, metavar="NAME,...", show=",".join, repeats=True)
NAMESPACE = Kind(read=_read_namespace, metavar="NAME")
ANY_NAMESPACE = Kind(read=_read_any_namespace, metavar="NAME")
OBJECT_NAME = Kind(read=_read_object_name, metavar="NAME")
GROUP = Kind(read=_read_group, metavar="GROUP")
