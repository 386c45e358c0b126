"""Builds HTML. Every text is escaped, so a name or a message in an object never becomes markup."""

from collections.abc import Iterable
from html import escape
from typing import TypeAlias
from urllib.parse import quote


class Markup(str):
    """Text that is HTML already. Only the functions of this module make it."""

    __slots__ = ()


Content: TypeAlias = str | Markup | Iterable["Content"]

VOID = frozenset({"link", "meta"})


def tag(name: str, /, *content: Content, **attributes: str) -> Markup:
    """Return an element. An attribute that is a word of Python ends with an underscore, such as `class_`."""
    named = (f' {key.rstrip("_").replace("_", "-")}="{_escaped(text)}"' for key, text in attributes.items())
    start = f"<{name}{''.join(named)}>"
    return Markup(start if name in VOID else f"{start}{markup(content)}</{name}>")


def markup(content: Content) -> Markup:
    """Return the content as HTML. A text that is no `Markup` is escaped."""
    match content:
        case Markup():
            return content
        case str():
            return Markup(_escaped(content))
        case _:
            return Markup("".join(map(markup, content)))


def _escaped(text: str) -> str:
    """Return the text as HTML in one line. A character that cannot be printed, such as an end of line, is a space."""
    return escape("".join(each if each.isprintable() else " " for each in text))


def path(*parts: str) -> str:
    """Return a path whose parts cannot end the path or begin another one."""
    return "/".join(quote(part, safe="") for part in parts)
