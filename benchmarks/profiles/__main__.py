"""`python -m benchmarks profile`: profile the controller in a phase, and find what needs CPU time.

python -m benchmarks profile [burst|cold-start|churn|scale-in ...] [--size N] [--directory DIR]
"""

import argparse
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks import objects
from benchmarks.cases import bursts, fleets
from benchmarks.cluster import SETTLE_S, Cluster, running_cluster
from benchmarks.controllers import Running, running_controller, wait_until
from benchmarks.page import ROOT
from benchmarks.profiles.shares import OWN, shares
from benchmarks.replay.client import running_replay

DIRECTORY = ROOT / "benchmarks" / "results"
SIZE = 3_000
SHOWN = 16
WITHIN_S = 600.0
CHURN_S = 20.0


def profile_burst(directory: Path, size: int, target: Path) -> None:
    """A replica set goes from 0 to N, on a real control plane."""
    with _owner_at(directory, bursts.SETS, 0, target) as (cluster, program), _profiled(program, target):
        _scale(cluster, bursts.SETS, size)


def profile_scale_in(directory: Path, size: int, target: Path) -> None:
    """A pool goes from N to 0, on a real control plane."""
    with _owner_at(directory, bursts.POOLS, size, target) as (cluster, program), _profiled(program, target):
        _scale(cluster, bursts.POOLS, 0)


def profile_cold_start(directory: Path, size: int, target: Path) -> None:
    """The controller starts with N VMIs in sets and N/3 VMs in pools, on the replay server."""
    with running_replay(directory, fleets.size_of(size)) as replay:
        for watched in ((), ("--profile", str(target), "--at-start")):
            with running_controller(replay.kubeconfig, directory / "controller.log", watched=watched) as program:
                program.wait_for('"working"', within_s=WITHIN_S)
                replay.until_quiet(quiet_s=5.0, within_s=WITHIN_S)
                if watched:
                    _finish(program, target)


def profile_churn(directory: Path, size: int, target: Path) -> None:
    """1,000 VMIs a second change in a way that means nothing, on the replay server."""
    with running_replay(directory, fleets.size_of(size)) as replay:
        log = directory / "controller.log"
        with running_controller(replay.kubeconfig, log, watched=("--profile", str(target))) as program:
            program.wait_for('"working"', within_s=WITHIN_S)
            replay.until_quiet(quiet_s=5.0, within_s=WITHIN_S)
            with _profiled(program, target):
                replay.ask("churn", rate=fleets.RATE, seconds=CHURN_S)
                replay.until_idle(within_s=CHURN_S + 60)


PROFILES: dict[str, Callable[[Path, int, Path], None]] = {
    "burst": profile_burst,
    "cold-start": profile_cold_start,
    "churn": profile_churn,
    "scale-in": profile_scale_in,
}


@contextmanager
def _owner_at(directory: Path, burst: bursts.Burst, replicas: int, target: Path) -> Iterator[tuple[Cluster, Running]]:
    """Run a control plane and the controller, with one set or pool that has these replicas."""
    with running_cluster(directory) as cluster:
        log = directory / "controller.log"
        with running_controller(cluster.kubeconfig, log, watched=("--profile", str(target))) as program:
            cluster.create(burst.path(), objects.scaled(burst.document, 0))
            program.wait_for('"working"', within_s=WITHIN_S)
            _scale(cluster, burst, replicas)
            yield cluster, program


def _scale(cluster: Cluster, burst: bursts.Burst, replicas: int) -> None:
    cluster.patch(burst.path(objects.BURST), {"spec": {"replicas": replicas}})
    cluster.until(lambda: cluster.count(burst.children_path) == replicas, f"{replicas} replicas", within_s=WITHIN_S)
    time.sleep(SETTLE_S)


@contextmanager
def _profiled(program: Running, target: Path) -> Iterator[None]:
    program.signal(signal.SIGUSR2)
    yield
    _finish(program, target)


def _finish(program: Running, target: Path) -> None:
    """Stop the profile, and wait for its file."""
    program.signal(signal.SIGUSR2)
    wait_until(target.exists, "the controller writes its profile", within_s=WITHIN_S)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="make bench ARGS=profile", description="Profile the controller.")
    parser.add_argument("phases", nargs="*", metavar="PHASE", help=f"{', '.join(PROFILES)} (default all)")
    parser.add_argument("--size", type=int, default=SIZE, help=f"VMIs or VMs (default {SIZE})")
    parser.add_argument("--directory", type=Path, default=DIRECTORY, help="directory for the folded stacks")
    given = parser.parse_args(arguments)
    if unknown := [phase for phase in given.phases if phase not in PROFILES]:
        parser.error(f"unknown phase {unknown[0]!r}; the phases are {', '.join(PROFILES)}")
    for phase in given.phases or PROFILES:
        with tempfile.TemporaryDirectory(prefix="vmherd-profile-") as directory:
            target = Path(directory) / "profile.folded"
            PROFILES[phase](Path(directory), given.size, target)
            folded = given.directory / f"profile-{phase}.folded"
            folded.parent.mkdir(parents=True, exist_ok=True)
            folded.write_bytes(target.read_bytes())
            print(f"{phase} {given.size}: {folded}")
            _show(folded.read_text())


def _show(folded: str) -> None:
    own, inner = shares(folded, own=True), shares(folded, own=False)
    ours = {name: share for name, share in inner.items() if name.startswith(OWN)}
    for what, found in (("of their own CPU time", own), ("of the CPU time in them and in what they call", ours)):
        print(f"  functions by the share {what}:")
        for name, share in [*found.items()][:SHOWN]:
            print(f"    {share:6.1%}  {name}")
