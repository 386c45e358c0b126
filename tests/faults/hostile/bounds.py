"""What a hostile tenant may cost the others: four bounds, measured while the tenant acts.

- The neighbour: a pool of another namespace follows each scale within `FOLLOWS_WITHIN_S`. The time in which the API
  server itself does not answer does not count: the server is not part of the test.
- The leader: the lease keeps its holder, and the process is not restarted.
- The event loop: it is never away for more than `AWAY_AT_MOST_S`.
- The memory: the resident memory grows by less than `GROWTH_AT_MOST_MB`.

The loop is away if it does not answer a probe, or if its own timer fires late. On a busy machine both also happen while
the process waits for a CPU. So the time counts only as far as the process has used CPU time in it.
"""

import http.client
import os
import re
import threading
import time
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from sandbox.admin import Admin, Rejected, Unanswered
from tests.controlplane.programs import ControllerProcess
from tests.faults.hostile.cluster import LEASES, POOL, Tenant, vm_template

FOLLOWS_WITHIN_S: Final = 5.0
AWAY_AT_MOST_S: Final = 1.0
GROWTH_AT_MOST_MB: Final = 100.0

SAMPLE_S: Final = 0.1
SCRAPE_EVERY: Final = 5
"""One sample in this number also reads the metrics, because their page costs CPU time."""

PAUSE_S: Final = 0.3
"""The pause between two scales of the neighbour."""

CALM: Final = "calm-pool"
PROMPT_S: Final = 0.1
"""An API server that is not busy answers within this time."""

GIVE_UP_S: Final = 8.0
"""A probe or a scale that takes longer than this time is not waited for any more."""

LAG: Final = re.compile(r"^vmherd_event_loop_lag_max_seconds(?:\{\})? (\S+)$", re.MULTILINE)
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
PAGE_MB: Final = os.sysconf("SC_PAGE_SIZE") / 1e6


class Figures(Struct):
    """What was measured. All times are in seconds, and the memory is in MB."""

    follows: list[float]
    away_s: float = 0.0
    slowest_answer_s: float = 0.0
    rss: float = 0.0
    growth: float = 0.0
    renewal_gap_s: float = 0.0
    holders: set[str] = field(default_factory=set)
    took_s: float = 0.0

    def __str__(self) -> str:
        return (
            f"{len(self.follows)} scales, the slowest {max(self.follows, default=0.0):.2f} s;"
            f" loop away {self.away_s:.2f} s"
            f" (slowest answer {self.slowest_answer_s:.2f} s); RSS {self.rss:.0f} MB, grown by {self.growth:.0f} MB;"
            f" {len(self.holders)} holder, longest time without renewal {self.renewal_gap_s:.1f} s;"
            f" {self.took_s:.1f} s in all"
        )


class Bounds:
    """Measures one controller while a block runs. At the end of the block, it asserts the bounds.

    `neighbour` is another namespace. `lease` is the name of the controller's lease. A standby
    does not serve the neighbour, so `scales` is false for it.
    """

    def __init__(self, program: ControllerProcess, neighbour: Tenant, lease: str, *, scales: bool = True) -> None:
        self.figures = Figures([])
        self._program, self._neighbour, self._lease = program, neighbour, lease
        self._admin = Admin(neighbour.plane.kubeconfig)
        self._stop = threading.Event()
        tasks = (self._probe, self._weigh, *((self._scale,) if scales else ()))
        self._threads = [threading.Thread(target=each, daemon=True) for each in tasks]
        self._errors: list[BaseException] = []

    def __enter__(self) -> "Bounds":
        self._began = time.monotonic()
        self._first_rss = self._memory()
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stop.set()
        for each in self._threads:
            each.join()
        self.figures.took_s = time.monotonic() - self._began

    @property
    def broken(self) -> list[str]:
        """The bounds that do not hold, each in one sentence."""
        figures = self.figures
        found = []
        if self._program.process.poll() is not None:
            found.append(f"the controller ended with {self._program.process.returncode}")
        if max(figures.follows, default=0.0) > FOLLOWS_WITHIN_S:
            found.append(f"the neighbour followed a scale after {max(figures.follows):.1f} s")
        if figures.away_s > AWAY_AT_MOST_S:
            found.append(f"the event loop was away for {figures.away_s:.1f} s")
        if figures.growth >= GROWTH_AT_MOST_MB:
            found.append(f"the resident memory grew by {figures.growth:.0f} MB")
        if len(figures.holders) > 1:
            found.append(f"the lease had the holders {sorted(figures.holders)}")
        return found

    def check(self) -> None:
        assert not self._errors, self._errors
        assert self.broken == [], f"{self.broken}: {self.figures}"

    def _probe(self) -> None:
        number, cpu, renewed, renewed_at = 0, self._cpu(), "", time.monotonic()
        while not self._stop.wait(SAMPLE_S) and self._program.process.poll() is None:
            try:
                path = self._program.metrics_url if number % SCRAPE_EVERY == 0 else f"{self._program.health_url}/livez"
                answer_s, lag_s = _ask(path)
                before, cpu = cpu, self._cpu()
                self._note(answer_s, lag_s, cpu - before)
                number += 1
                spec = self._admin.get(f"{LEASES}/{self._lease}")["spec"]
            except (Unanswered, Rejected, OSError, ValueError) as error:
                if self._program.process.poll() is None:
                    self._errors.append(error)
                return
            self.figures.holders.add(spec.get("holderIdentity", ""))
            if spec["renewTime"] != renewed:
                renewed, renewed_at = spec["renewTime"], time.monotonic()
            self.figures.renewal_gap_s = max(self.figures.renewal_gap_s, time.monotonic() - renewed_at)

    def _note(self, answer_s: float, lag_s: float, cpu_s: float) -> None:
        self.figures.slowest_answer_s = max(self.figures.slowest_answer_s, answer_s)
        self.figures.away_s = max(self.figures.away_s, min(max(answer_s, lag_s), cpu_s))

    def _weigh(self) -> None:
        while not self._stop.wait(SAMPLE_S):
            rss = self._memory()
            self.figures.rss = max(self.figures.rss, rss)
            self.figures.growth = max(self.figures.growth, rss - self._first_rss)

    def _scale(self) -> None:
        """Scale the neighbour's pool again and again, and measure the time until its VMs exist."""
        wanted = len(self._neighbour.children(CALM))
        while not self._stop.wait(PAUSE_S):
            wanted = 3 - wanted
            try:
                self._neighbour.patch(POOL, CALM, {"spec": {"replicas": wanted}})
                self.figures.follows.append(self._time_to_follow(wanted))
            except (Unanswered, Rejected) as error:
                self._errors.append(error)
                return

    def _time_to_follow(self, wanted: int) -> float:
        """Return the seconds until the neighbour has this number of VMs, without the time of a slow API server."""
        began, api_s = time.monotonic(), 0.0
        while True:
            asked = time.monotonic()
            has_followed = len(self._neighbour.children(CALM)) == wanted
            api_s += max(time.monotonic() - asked - PROMPT_S, 0.0)
            took_s = time.monotonic() - began - api_s
            if has_followed or took_s > GIVE_UP_S or self._program.process.poll() is not None:
                return took_s
            time.sleep(0.03)

    def _memory(self) -> float:
        try:
            return int(self._proc("statm").split()[1]) * PAGE_MB
        except OSError:
            return 0.0

    def _cpu(self) -> float:
        """The CPU time of the process so far."""
        try:
            fields = self._proc("stat").rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def _proc(self, name: str) -> str:
        return Path(f"/proc/{self._program.process.pid}/{name}").read_text()


def _ask(address: str) -> tuple[float, float]:
    """Send one request to the controller. Return the time of the answer, and the lag in it, if it is the metrics."""
    host, _, path = address.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(host, timeout=GIVE_UP_S)
    began = time.monotonic()
    try:
        connection.request("GET", f"/{path}")
        text = connection.getresponse().read().decode()
    except TimeoutError:
        text = ""
    finally:
        connection.close()
    found = LAG.search(text)
    return time.monotonic() - began, float(found[1]) if found else 0.0


def calm_pool(neighbour: Tenant) -> None:
    """Create the neighbour's pool."""
    neighbour.make_pool(CALM, 1, virtualMachineTemplate=vm_template({"app": "x", "calm": "yes"}))
