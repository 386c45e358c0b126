"""The output of `tree`, `why` and `rollout status` in each state of a pool and a set, as files in `golden`.

Lines of stderr begin with `! `. `GOLDEN=write pytest tests/plugin/test_golden.py` writes the files again: read the
difference before you commit it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.plugin import states
from tests.plugin.cluster import Cluster, Shell

GOLDEN = Path(__file__).with_name("golden")
LOOKING = ("tree {}", "why {}", "rollout status {} --watch=false")


def transcript(shell: Shell, *lines: str) -> str:
    """The commands with their output, and with the exit code if it is not 0."""
    text = ""
    for line in lines:
        code, out, err = shell(line)
        errors = "".join(f"! {each}\n" for each in err.splitlines())
        text += f"$ kubectl vmherd {line}\n{out}{errors}" + (f"[exit code {code}]\n" if code else "") + "\n"
    return text


def compare(name: str, text: str) -> None:
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("GOLDEN") == "write":
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize("state", states.POOLS)
def test_a_pool_is_shown_and_explained(cluster: Cluster, shell: Shell, state: str):
    states.lease(cluster)
    states.POOLS[state](cluster)
    compare(f"pool-{state}", transcript(shell, *(line.format("vmpool/web") for line in LOOKING)))


@pytest.mark.parametrize("state", states.SETS)
def test_a_set_is_shown_and_explained(cluster: Cluster, shell: Shell, state: str):
    states.lease(cluster)
    states.SETS[state](cluster)
    compare(f"set-{state}", transcript(shell, *(line.format(f"vmirs/{states.SET_NAME}") for line in LOOKING)))
