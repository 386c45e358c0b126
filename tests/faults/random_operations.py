"""Random operations on the real API server: `python -m tests.faults.random_operations --operations 10000 --seed 1`.

Sequences run side by side, each in a namespace of its own. The seed and the number of a sequence decide its operations.
A sequence that fails is shrunk: parts are left out as long as the rest still fails. The program prints the shrunk
sequence and the command that repeats it, and ends with code 1.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sandbox.binaries import find_binaries
from sandbox.controlplane import ControlPlane
from tests.cluster import running_plane
from tests.controlplane.programs import simulator
from tests.faults.operations.catalogue import from_json, random_sequence, to_json
from tests.faults.operations.changes import Operation
from tests.faults.operations.cluster import Cluster, open_cluster
from tests.faults.operations.sequence import Verdict, run_sequence
from tests.faults.operations.world import KindName

PROGRAM = "python -m tests.faults.random_operations"
LENGTH = 20
PARALLEL = 6
SHRINK_PARALLEL = 4
SHRINK_WITHIN_S = 600.0


@contextmanager
def operations_plane() -> Iterator[tuple[ControlPlane, Path]]:
    """A control plane with a simulator, and a directory for kubeconfigs."""
    with (
        running_plane(find_binaries(), audit_level="RequestResponse") as plane,
        simulator(plane),
        tempfile.TemporaryDirectory(prefix="vmherd-operations-") as directory,
    ):
        yield plane, Path(directory)


def kind_of(number: int, kinds: Sequence[KindName]) -> KindName:
    return kinds[number % len(kinds)]


def sequence_of(seed: int, number: int, kinds: Sequence[KindName], length: int) -> tuple[Operation, ...]:
    """The operations of one sequence."""
    return random_sequence(kind_of(number, kinds), length, f"{seed}/{number}")


async def run_many(
    cluster: Cluster, seed: int, numbers: Sequence[int], kinds: Sequence[KindName], *, length: int, parallel: int
) -> dict[int, Verdict]:
    """Run these sequences side by side, and return their verdicts."""
    todo = iter(numbers)
    verdicts: dict[int, Verdict] = {}

    async def lane() -> None:
        for number in todo:
            sequence = sequence_of(seed, number, kinds, length)
            verdict = await run_sequence(cluster, kind_of(number, kinds), sequence)
            verdicts[number] = verdict
            _report(seed, number, kind_of(number, kinds), verdict, sequence)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(parallel, len(numbers))):
            group.create_task(lane())
    return verdicts


async def shrink(cluster: Cluster, kind: KindName, sequence: Sequence[Operation]) -> tuple[Operation, ...]:
    """Leave out parts of a failing sequence as long as the rest still fails."""
    best = tuple(sequence)
    give_up = time.monotonic() + SHRINK_WITHIN_S
    size = max(len(best) // 2, 1)
    while time.monotonic() < give_up:
        shorter = [best[:at] + best[at + size :] for at in range(0, len(best), size)]
        found = await _first_failing(cluster, kind, [each for each in shorter if each])
        if found is not None:
            best = found
            size = min(size, max(len(best) // 2, 1))
        elif size > 1:
            size //= 2
        else:
            break
    return best


async def _first_failing(
    cluster: Cluster, kind: KindName, candidates: Sequence[tuple[Operation, ...]]
) -> tuple[Operation, ...] | None:
    for at in range(0, len(candidates), SHRINK_PARALLEL):
        batch = candidates[at : at + SHRINK_PARALLEL]
        verdicts = await asyncio.gather(*(run_sequence(cluster, kind, each) for each in batch))
        for candidate, verdict in zip(batch, verdicts, strict=True):
            if verdict.violations:
                return candidate
    return None


def explain(kind: KindName, verdict: Verdict, sequence: Sequence[Operation]) -> str:
    """The violations, the trace, and the command that repeats the sequence."""
    lines = ["VIOLATION", *(f"  {each}" for each in verdict.violations), "trace:", *(f"  {e}" for e in verdict.trace)]
    return "\n".join([*lines, f"repeat: {PROGRAM} --kind {kind} --sequence '{to_json(sequence)}'"])


def _report(seed: int, number: int, kind: KindName, verdict: Verdict, sequence: Sequence[Operation]) -> None:
    state = "FAILED" if verdict.violations else "ok"
    figures = f"{verdict.applied} operations, {verdict.writes} writes, {verdict.seconds:.1f} s"
    print(f"{time.strftime('%H:%M:%S')} seed {seed} sequence {number} {kind}: {state}, {figures}", flush=True)
    if verdict.violations:
        print(explain(kind, verdict, sequence), flush=True)


async def _main(options: argparse.Namespace, plane: ControlPlane, directory: Path) -> int:
    async with open_cluster(plane, directory) as cluster:
        if options.sequence:
            return await _repeat(cluster, options)
        numbers = range(max(1, -(-options.operations // options.length)))
        kinds: Sequence[KindName] = ("pools", "sets") if options.kind == "both" else (options.kind,)
        length, parallel = options.length, options.parallel
        verdicts = await run_many(cluster, options.seed, numbers, kinds, length=length, parallel=parallel)
        failed = sorted(number for number, verdict in verdicts.items() if verdict.violations)
        applied = sum(verdict.applied for verdict in verdicts.values())
        writes = sum(verdict.writes for verdict in verdicts.values())
        print(f"seed {options.seed}: {applied} operations in {len(verdicts)} sequences, {writes} writes of controllers")
        checks = sum((Counter(verdict.checks) for verdict in verdicts.values()), Counter[str]())
        print(f"checks of invariants: {', '.join(f'{number} {count}' for number, count in sorted(checks.items()))}")
        print(f"violations in {len(failed)} sequences: {failed}", flush=True)
        for number in failed[:1]:
            await _print_shrunk(cluster, kind_of(number, kinds), sequence_of(options.seed, number, kinds, length))
        return 1 if failed else 0


async def _repeat(cluster: Cluster, options: argparse.Namespace) -> int:
    """Run one given sequence."""
    sequence = from_json(options.sequence)
    verdict = await run_sequence(cluster, options.kind, sequence)
    if not verdict.violations:
        return 0
    print(explain(options.kind, verdict, sequence))
    await _print_shrunk(cluster, options.kind, sequence)
    return 1


async def _print_shrunk(cluster: Cluster, kind: KindName, sequence: Sequence[Operation]) -> None:
    shrunk = await shrink(cluster, kind, sequence)
    print(f"shrunk to {len(shrunk)} operations:", flush=True)
    print(explain(kind, await run_sequence(cluster, kind, shrunk), shrunk), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Random operations on the real API server.")
    parser.add_argument("--operations", type=int, default=200, help="how many operations to run (default %(default)s)")
    parser.add_argument("--length", type=int, default=LENGTH, help="operations in a sequence (default %(default)s)")
    parser.add_argument("--parallel", type=int, default=PARALLEL, help="sequences side by side (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="decides all operations (default %(default)s)")
    parser.add_argument("--kind", choices=("sets", "pools", "both"), default="both")
    parser.add_argument("--sequence", default="", help="run this sequence (JSON), for one --kind")
    options = parser.parse_args()
    if options.sequence and options.kind == "both":
        parser.error("--sequence needs --kind sets or --kind pools")
    with operations_plane() as (plane, directory):
        return asyncio.run(_main(options, plane, directory))


if __name__ == "__main__":
    sys.exit(main())
