"""Draws folded stacks as a flame graph, and finds the functions that need most of the CPU time."""

from collections import Counter
from collections.abc import Iterator
from xml.sax.saxutils import escape

from msgspec import Struct, field

WIDTH, ROW, LETTER = 1200, 17, 6.6
LEFT, TOP = 8, 30
NARROWEST = 0.6
"""A function with a narrower box, in pixels, is left out."""

OWN = ("controller/", "informers/")
"""The beginnings of the names of vmherd's functions."""

COLOURS = {"controller": "#f2a65a", "informers": "#e8743b", "aiohttp": "#8ab6d6", "asyncio": "#a9d0b3"}
OTHER = "#d9d2c7"


class Node(Struct):
    """One function in one stack, with its samples and the functions that it calls."""

    name: str
    samples: int = 0
    children: dict[str, "Node"] = field(default_factory=dict)


def stacks(folded: str) -> Iterator[tuple[list[str], int]]:
    """Yield the functions of each stack, from outside to inside, and its samples."""
    for line in folded.splitlines():
        stack, _, count = line.rpartition(" ")
        yield stack.split(";"), int(count)


def tree(folded: str) -> Node:
    """Return the tree of all stacks. The root has all samples."""
    root = Node("all")
    for names, count in stacks(folded):
        node = root
        node.samples += count
        for name in names:
            node = node.children.setdefault(name, Node(name))
            node.samples += count
    return root


def shares(folded: str, *, own: bool) -> dict[str, float]:
    """Return the share of all samples in which each function is on the stack, or with `own` at its end."""
    found: Counter[str] = Counter()
    total = 0
    for names, count in stacks(folded):
        total += count
        found.update(dict.fromkeys(names[-1:] if own else names, count))
    return {name: count / total for name, count in found.most_common()}


def draw(folded: str, title: str) -> str:
    """Return the flame graph as SVG. The width of a box is the share of its samples. A title shows the share."""
    root = tree(folded)
    height = TOP + ROW * _depth(root, WIDTH / (root.samples or 1)) + 8
    boxes = "\n".join(_boxes(root, LEFT, 0, (WIDTH - 2 * LEFT) / (root.samples or 1), root.samples or 1))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        ' font-family="monospace" font-size="11">\n'
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>\n'
        f'<text x="{LEFT}" y="18" font-size="13">{escape(title)} ({root.samples} samples)</text>\n{boxes}\n</svg>\n'
    )


def _depth(node: Node, scale: float) -> int:
    return 1 + max(
        (_depth(each, scale) for each in node.children.values() if each.samples * scale > NARROWEST), default=0
    )


def _boxes(node: Node, x: float, depth: int, scale: float, total: int) -> Iterator[str]:
    width, y = node.samples * scale, TOP + depth * ROW
    name = escape(node.name)
    shown = node.name.rpartition(":")[2] or node.name
    text = escape(shown[: int(width / LETTER)]) if width > 3 * LETTER else ""
    yield (
        f"<g><title>{name} {node.samples / total:.1%}</title>"
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{ROW - 1}" fill="{_colour(node.name)}"/>'
        + (f'<text x="{x + 2:.1f}" y="{y + 12}">{text}</text>' if text else "")
        + "</g>"
    )
    for child in sorted(node.children.values(), key=lambda each: each.name):
        if child.samples * scale > NARROWEST:
            yield from _boxes(child, x, depth + 1, scale, total)
        x += child.samples * scale


def _colour(name: str) -> str:
    return COLOURS.get(name.partition("/")[0], OTHER)
