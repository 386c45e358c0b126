"""This module reads single keys from the terminal."""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress

CHUNK = 1024

PASTED = 8
"""The number of characters at once from which the input is a pasted text. A user cannot press so many keys at once."""

ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|O.|.)?", re.DOTALL)
"""The input of keys that are no characters, such as the arrow keys."""


class Keyboard:
    """The keys of the terminal. `is_open` is False after the terminal is closed."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.is_open = True

    def read(self, within_s: float | None) -> str:
        """Wait for keys at most `within_s` seconds, or without a limit. Return the keys, or "" if there are none."""
        if not select.select([self._descriptor], [], [], within_s)[0]:
            return ""
        try:
            data = os.read(self._descriptor, CHUNK)
        except OSError:
            data = b""
        self.is_open = bool(data)
        return keys_in(data.decode(errors="replace"))


def keys_in(text: str) -> str:
    """Return the characters of keys, as lower case. A pasted text has no keys."""
    characters = ESCAPES.sub("", text)
    return "" if len(characters) > PASTED else characters.lower()


@contextmanager
def keyboard() -> Iterator[Keyboard]:
    """Read keys without Enter and without an echo. Ctrl-C still interrupts, and Ctrl-Z does not stop the demo."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    now = termios.tcgetattr(descriptor)
    now[6][termios.VSUSP] = bytes([os.fpathconf(descriptor, "PC_VDISABLE")])
    termios.tcsetattr(descriptor, termios.TCSANOW, now)
    try:
        yield Keyboard(descriptor)
    finally:
        with suppress(termios.error):  # the terminal is closed
            termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)
