"""Keys of the demo."""

import os
import sys
import termios

import pytest

from sandbox.demo.command import Keyboard, keyboard, keys_in


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("1", "1"),
        ("17", "17"),
        ("Q", "q"),
        ("\x1b[A\x1b[1;5C\x1bOP7", "7"),  # arrow keys and F1
        ("\x1b", ""),
        ("kubectl scale vmirs testreplicaset --replicas 5\n", ""),
    ],
)
def test_only_keys_of_characters_count_and_a_pasted_text_has_no_keys(text: str, keys: str) -> None:
    assert keys_in(text) == keys


def test_the_end_of_the_terminal_is_noticed() -> None:
    ours, theirs = os.pipe()
    os.write(theirs, b"5")
    os.close(theirs)
    keys = Keyboard(ours)
    assert (keys.read(None), keys.is_open) == ("5", True)
    assert (keys.read(None), keys.is_open) == ("", False)
    os.close(ours)


def test_keys_need_no_enter_and_the_terminal_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.openpty()
    before = termios.tcgetattr(theirs)
    with open(theirs, closefd=False) as terminal, monkeypatch.context() as patched:
        patched.setattr(sys, "stdin", terminal)
        with keyboard() as keys:
            os.write(ours, b"3\x1a")  # Ctrl-Z is an ordinary key
            assert keys.read(None) == "3\x1a"
            assert not termios.tcgetattr(theirs)[3] & termios.ECHO
    assert termios.tcgetattr(theirs) == before
    os.close(ours)
    os.close(theirs)
