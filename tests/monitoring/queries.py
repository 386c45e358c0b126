"""PromQL for the tests: the metrics in a query, and the values of Grafana's variables."""

import re
from collections.abc import Mapping

_METRIC = re.compile(
    r"\b(?:vmherd|workqueue|controller_runtime|rest_client|leader_election|kubevirt|process|python)_\w+"
)


def metrics_in(query: str) -> set[str]:
    """The names of the project's metrics in a query, found by their prefixes."""
    return set(_METRIC.findall(re.sub(r'"[^"]*"', '""', query)))


def filled_in(query: str, **values: str) -> str:
    """A panel's query as Grafana sends it. A variable without a given value is "All"."""
    chosen: Mapping[str, str] = {"__rate_interval": "1m", **values}
    return re.sub(r"\$(\w+)", lambda match: chosen.get(match[1], ".*"), query)
