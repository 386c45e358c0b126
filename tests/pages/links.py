"""Finds broken links in Markdown pages: to a file, to a heading of a page, or to a site with a malformed address."""

import re
from collections.abc import Iterator
from pathlib import Path

LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]*)>?[^)]*\)")
CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
SITE = re.compile(r"https://[a-z0-9-]+(?:\.[a-z0-9-]+)+(?::\d+)?(?:/[\w./%~@:+,=&?#-]*)?")


def broken_links(page: Path) -> list[str]:
    """The targets of the broken links of a page. The addresses of sites are not opened."""
    return [target for target in links_of(page) if not _leads_somewhere(page, target)]


def links_of(page: Path) -> Iterator[str]:
    yield from LINK.findall(CODE.sub(_without_links, page.read_text()))


def anchors_of(page: Path) -> set[str]:
    """The anchors of the headings, as GitHub makes them. A repeated heading gets a number."""
    anchors: dict[str, int] = {}
    for heading in HEADING.findall(re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        count = anchors.get(anchor, 0)
        anchors[anchor] = count + 1
        if count:
            anchors[f"{anchor}-{count}"] = 1
    return set(anchors)


def _without_links(code: re.Match[str]) -> str:
    """Code that a link shows, such as [`name`](page.md), stays a text. Links inside code are no links."""
    return re.sub(r"[\[\]()]", "", code[0])


def _leads_somewhere(page: Path, target: str) -> bool:
    if "://" in target:
        return SITE.fullmatch(target) is not None
    name, mark, anchor = target.partition("#")
    path = page.parent / name if name else page
    if not path.exists():
        return False
    return not mark or (path.suffix == ".md" and anchor in anchors_of(path))
