"""Checks of a state, with short descriptions for the report."""

from typing import Any

import msgspec

from conformance.api import is_ready, is_terminating
from conformance.case import Unmet

SHOWN = 300


def require(expected: str, met: object, seen: object) -> None:
    """Raise Unmet if `met` is false."""
    if not met:
        raise Unmet(expected, describe(seen))


def describe(seen: object) -> str:
    """Return a short text of one line for a value. Objects of the API server are reduced to their names and states."""
    text = seen if isinstance(seen, str) else msgspec.json.encode(_reduced(seen)).decode()
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 3]}..."


def _reduced(seen: Any) -> Any:
    match seen:
        case {"metadata": {"name": str(name)}}:
            status = seen.get("status") or {}
            state = status.get("phase") or status.get("printableStatus") or ""
            words = (state, "ready" if is_ready(seen) else "", "terminating" if is_terminating(seen) else "")
            return " ".join(word for word in (name, *words) if word)
        case dict() if seen and all(isinstance(value, dict) and "metadata" in value for value in seen.values()):
            return [_reduced(value) for value in seen.values()]
        case dict():
            return {str(key): _reduced(value) for key, value in seen.items()}
        case set() | frozenset():
            return sorted(map(str, seen))
        case list() | tuple():
            return [_reduced(value) for value in seen]
        case _:
            return seen
