"""Writes parts of Markdown pages."""

from collections.abc import Iterable, Iterator, Sequence


class Undescribed(ValueError):
    """The names in the code and the names with a text differ. `str()` lists the names."""


def introduction(source: str) -> str:
    """Return the first lines of a page: a note for its editors, and the text before the sections of its source."""
    text = source.partition("\n## ")[0].strip()
    return f"<!-- `make reference` writes this page. -->\n\n{text}\n"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(_escaped(cell) for cell in line)} |\n" for line in lines)


def code(text: str) -> str:
    return f"`{text}`"


def sentence(text: str) -> str:
    return " ".join(text.split())


def sections(source: str) -> Iterator[tuple[str, ...]]:
    for section in source.split("\n## ")[1:]:
        yield tuple(map(sentence, section.strip().split("\n\n")))


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|")
