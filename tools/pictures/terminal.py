"""Draws what a terminal shows as SVG."""

from __future__ import annotations

import io
import re
from typing import Final

from rich.console import Console, RenderableType
from rich.text import Text

FONT_FACE: Final = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
"""rich's SVG loads a font from the internet. A page must not do so, and every viewer has a monospace font."""


def width_of(text: Text) -> int:
    """Return the width of a terminal in which no line of the text is broken."""
    return max(map(len, text.plain.splitlines()), default=0) + 1


def svg(content: RenderableType, *, title: str, name: str, width: int) -> str:
    """Return the picture of a terminal of this width. The ids in the picture contain `name`."""
    console = Console(
        record=True, width=width, height=1000, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(content, soft_wrap=False)
    drawn = console.export_svg(title=title, unique_id=f"vmherd-{name}")
    lines = FONT_FACE.sub("", drawn).splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"
