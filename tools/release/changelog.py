"""Reads CHANGELOG.md, which has the format of Keep a Changelog."""

import re
from collections.abc import Iterator

KINDS = ("added", "changed", "deprecated", "removed", "fixed", "security")
LONGEST = 250


def section(text: str, version: str) -> str | None:
    """Return the content of the section of a version, or None if the file has no such section or it is empty."""
    start = re.search(rf"^## \[{re.escape(version)}\].*$", text, re.MULTILINE)
    if start is None:
        return None
    rest = text[start.end() :]
    end = re.search(r"^(## |\[[^\]]+\]: )", rest, re.MULTILINE)
    return (rest[: end.start()] if end else rest).strip() or None


def changes(notes: str) -> Iterator[tuple[str, str]]:
    """Yield the kind and the first sentence of each list item, without the marks of Markdown."""
    kind = "changed"
    for block in re.split(r"\n(?=- |### )", f"\n{notes}"):
        words = " ".join(block.split())
        if words.startswith("### "):
            found = words.removeprefix("### ").split()[0].lower()
            kind = found if found in KINDS else "changed"
        elif words.startswith("- "):
            yield kind, first_sentence(words.removeprefix("- "))


def first_sentence(text: str) -> str:
    """Return the first sentence as plain text, cut at a word if it is very long."""
    plain = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", text).replace("**", "").replace("`", "")
    sentence = re.split(r"(?<=\w\w[.!?]) ", plain, maxsplit=1)[0]
    if len(sentence) <= LONGEST:
        return sentence
    return sentence[:LONGEST].rpartition(" ")[0].rstrip(",;:") + " ..."
