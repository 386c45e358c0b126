"""Every fact that a command shows as text is in its data: in each state of the golden files, for each view."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.plugin import states
from tests.plugin.cluster import Cluster, Shell

VIEWS = ("list", "tree {}", "why {}", "plan {}", "rollout history {}", "rollout status {} --watch=false")
HEADERS = {"NAME", "REVISION"}
AGE = re.compile(r"\d+[smhd](\d+[smhd])?|<unknown>")
MARKS = {"*", "-", "<none>", "True", "False", "nothing", "rolled back"}
TOPIC = re.compile(r"^(?:  (?:\w+ +)?|event |held: |vm\w*/)")
COUNTS = re.compile(r"(?:(\w+) )?(\d+)/(\d+)|(\w+)->(\w+)")


def facts(text: str) -> Iterator[str]:
    """The cells and texts of an output, without what it is made of: headers, branches, topics and ages."""
    for line in text.splitlines():
        if (line.split() and line.split()[0] in HEADERS) or (line.startswith("virtualmachine") and ": " not in line):
            continue
        for cell in re.split(r" {2,}", line.removeprefix("|- ").removeprefix("`- ")):
            said = TOPIC.sub("", re.sub(r"^[\w.]+/[\w.-]+: ", "", cell)).strip()
            counts = COUNTS.fullmatch(said)
            for each in filter(None, counts.groups()) if counts else [said]:
                if each and each not in MARKS and not AGE.fullmatch(each):
                    yield each


def leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from leaves(each)
    else:
        yield str(value)


@pytest.mark.parametrize("state", [*states.POOLS, *states.SETS])
def test_every_fact_of_the_text_is_in_the_data(cluster: Cluster, shell: Shell, state: str):
    states.lease(cluster)
    is_pool = state in states.POOLS
    (states.POOLS if is_pool else states.SETS)[state](cluster)
    name = "vmpool/web" if is_pool else f"vmirs/{states.SET_NAME}"
    for view in VIEWS:
        line = view.format(name)
        code, text, _ = shell(line)
        told, data, _ = shell(f"{line} -o json")
        assert told == code
        known = " | ".join((name, *leaves(json.loads(data) if data else "")))
        assert [each for each in facts(text) if each not in known] == [], line
