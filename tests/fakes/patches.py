"""The two patch formats of the API server, as pure functions on decoded JSON. The input is never changed."""

from typing import Any

import msgspec


class PatchError(ValueError):
    """A JSON patch that does not fit the document."""


def merge_patch(document: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7396). The result shares its unchanged parts with the document."""
    if not isinstance(patch, dict):
        return patch
    result = dict(document) if isinstance(document, dict) else {}
    for field, value in patch.items():
        if value is None:
            result.pop(field, None)
        else:
            result[field] = merge_patch(result.get(field), value)
    return result


def json_patch(document: Any, steps: list[dict[str, Any]]) -> Any:
    """Apply the operations of a JSON patch (RFC 6902) that this project sends: test, add, replace, remove.

    Raises PatchError if an operation does not fit.
    """
    result = msgspec.json.decode(msgspec.json.encode(document))
    for step in steps:
        *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:])
        try:
            holder: Any = result
            for part in parents:
                holder = holder[_place(holder, part)]
            _apply(holder, step, last)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise PatchError(f"{step['op']} {step['path']}: {error}") from error
    return result


def _apply(holder: Any, step: dict[str, Any], last: str) -> None:
    operation = step["op"]
    if operation == "add" and isinstance(holder, list):
        holder.insert(len(holder) if last == "-" else int(last), step["value"])
        return
    place = _place(holder, last)
    if operation == "add":
        holder[place] = step["value"]
        return
    value = holder[place]
    match operation:
        case "test":
            if value != step["value"]:
                raise ValueError(f"the value is {value!r}")
        case "replace":
            holder[place] = step["value"]
        case "remove":
            del holder[place]
        case _:
            raise ValueError("unknown operation")


def _place(holder: Any, part: str) -> str | int:
    return int(part) if isinstance(holder, list) else part
