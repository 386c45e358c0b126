"""Generates the dashboard of the fleet, with the metrics of each kind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from controller.kinds import KINDS

PREFIX, PREFIXES, NOUN = "@prefix@", "@prefixes@", "@noun@"


def fleet(source: str) -> str:
    """Return the dashboard. `source` is the same dashboard with placeholders in its queries.

    In a query, `@prefix@` stands for the metric prefix of a kind. If the legend contains `@noun@`, the query becomes
    one query for each kind. Otherwise the query becomes the sum over all kinds. `@prefixes@` stands for all prefixes,
    as a regular expression.
    """
    board = json.loads(source)
    for panel in board["panels"]:
        if "targets" in panel:
            panel["targets"] = [each for target in panel["targets"] for each in _targets(target)]
    return json.dumps(board, indent=2) + "\n"


def _targets(target: dict[str, Any]) -> Iterator[dict[str, Any]]:
    expr = target["expr"].replace(PREFIXES, "|".join(kind.metric_prefix for kind in KINDS))
    legend = target["legendFormat"]
    if NOUN not in legend:
        exprs = [expr.replace(PREFIX, kind.metric_prefix) for kind in KINDS] if PREFIX in expr else [expr]
        yield target | {"expr": " + ".join(exprs)}
        return
    for number, kind in enumerate(KINDS):
        yield target | {
            "refId": chr(ord(target["refId"]) + number),
            "expr": expr.replace(PREFIX, kind.metric_prefix),
            "legendFormat": legend.replace(NOUN, kind.noun),
        }
