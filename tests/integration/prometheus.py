"""A real Prometheus that scrapes the controller and answers queries."""

import json
import math
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from sandbox.processes import free_ports
from tests.controlplane.waits import eventually


class Prometheus:
    def __init__(self, url: str) -> None:
        self._url = url
        # Ignore the environment's proxy settings: the server is on loopback.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    @property
    def is_ready(self) -> bool:
        try:
            with self._opener.open(f"{self._url}/-/ready", timeout=10) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as error:
            error.close()
            return False
        except OSError:
            return False

    def ask(self, query: str) -> list[dict[str, Any]]:
        """The series that an instant query returns. Fails the test if the query is invalid."""
        answer = self._get("query", query=query)
        assert answer["resultType"] == "vector", answer
        found: list[dict[str, Any]] = answer["result"]
        return found

    def numbers(self, query: str) -> list[float]:
        """The values of the query's series, without NaN."""
        values = (float(series["value"][1]) for series in self.ask(query))
        return [value for value in values if not math.isnan(value)]

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def targets(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._get("targets")["activeTargets"]
        return found

    def has_scraped(self, *, since: float) -> bool:
        """True if a scrape that began after this time has succeeded."""
        return any(time >= since for time in self.numbers("timestamp(up == 1)"))

    def wait_for_scrape(self) -> None:
        """Wait for a scrape that begins after this call."""
        now = time.time()
        eventually(lambda: self.has_scraped(since=now), what="a scrape")

    def _get(self, path: str, **params: str) -> Any:
        url = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(params)}"
        with self._opener.open(url, timeout=30) as answer:
            return json.load(answer)["data"]


@contextmanager
def prometheus(
    program: Path, directory: Path, jobs: Sequence[dict[str, Any]], *, rules: Path | None = None
) -> Iterator[Prometheus]:
    """Run Prometheus with these jobs and rules while the block runs. Default interval: one second."""
    [port] = free_ports(1)
    settings = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)] if rules else [],
        "scrape_configs": list(jobs),
    }
    (directory / "prometheus.yaml").write_text(yaml.safe_dump(settings))
    command = [program, f"--config.file={directory / 'prometheus.yaml'}", f"--storage.tsdb.path={directory / 'tsdb'}"]
    command += [f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"]
    with (directory / "prometheus.log").open("wb") as output:
        process = subprocess.Popen(command, cwd=directory, stdout=output, stderr=subprocess.STDOUT)
    server = Prometheus(f"http://127.0.0.1:{port}")

    def ready() -> bool:
        assert process.poll() is None, (directory / "prometheus.log").read_text()[-3000:]
        return server.is_ready

    try:
        eventually(ready, what="Prometheus is ready")
        yield server
    finally:
        process.terminate()
        process.wait(30)
