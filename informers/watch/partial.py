"""This module decodes the readable fields of an object that cannot be decoded completely.

One field of the wrong type, such as a number in `status.phase`, makes an object undecodable. Another client may have
written the field. Readers of the cache still need to know the labels, the owner and the deletion of the object. So the
cache gets the object with all readable fields. An unreadable field keeps its last readable value.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw, Struct, structs

from informers.meta import KubeObject
from informers.watch.nesting import TOO_DEEP

T = TypeVar("T", bound=KubeObject)

MARK = "undecodable"
"""The name of the field with the decoder's message. The field is "" if the object was decoded completely."""


class Partial(Struct, Generic[T], frozen=True):
    """An object with its readable fields. The fields in `lost` have their default values."""

    object: T
    lost: tuple[str, ...]


class PartialDecoder(Generic[T]):
    """A decoder for the fields of a type. The type must have the fields `metadata` and `undecodable`."""

    def __init__(self, type_: type[T]) -> None:
        self._type = type_
        self._fields = {
            each.encode_name: (each.name, msgspec.json.Decoder(each.type))
            for each in structs.fields(type_)  # type: ignore[arg-type]
            if each.name != MARK
        }

    def decode(self, raw: Raw, why: str) -> Partial[T] | None:
        """Decode each field separately. Return None if the metadata are unreadable or have no name.

        The argument `why` is the decoder's message for the whole object.
        """
        try:
            texts = _decode_fields(raw)
        except (msgspec.DecodeError, RecursionError):
            return None
        values: dict[str, Any] = {}
        lost: list[str] = []
        for name, (field, decoder) in self._fields.items():
            text = texts.get(name)
            if text is None:
                continue
            try:
                value = decoder.decode(text)
                is_cut = field != "metadata" and TOO_DEEP in bytes(text)
            except (msgspec.DecodeError, RecursionError):
                is_cut = True
            if is_cut:
                lost.append(field)
            else:
                values[field] = value
        if "metadata" not in values or not values["metadata"].name:
            return None
        return Partial(self._type(**values, **({MARK: why} if lost else {})), tuple(lost))


_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def complete(partial: Partial[T], cached: T | None) -> T:
    """Return the object.

    If the cached object has the same UID, the unreadable fields are taken from the cached object.
    """
    obj: Any = partial.object
    if cached is None or cached.metadata.uid != obj.metadata.uid:
        return partial.object
    completed: T = structs.replace(obj, **{name: getattr(cached, name) for name in partial.lost})
    return completed
