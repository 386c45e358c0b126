"""`python -m benchmarks`: measure, print a table, and write the results as JSON.

python -m benchmarks [--count 1000] [--rounds 3] [--rest 10] [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.burst import measure_burst
from benchmarks.decoding import measure_decoding
from benchmarks.metrics import measure_metrics
from benchmarks.program import import_rss_mb
from sandbox.binaries import find_binaries
from sandbox.controlplane import ControlPlane

RESULTS = Path(__file__).parent / "results" / "burst.json"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure the CPU, memory and requests of the controller."
    )
    parser.add_argument("--count", type=int, default=1000, help="VMIs to create and delete (default 1000)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, each on a fresh control plane (default 3)")
    parser.add_argument("--rest", type=float, default=10.0, help="seconds to measure without any changes (default 10)")
    parser.add_argument("--output", type=Path, default=RESULTS, help="file for the results, as JSON")
    arguments = parser.parse_args()
    binaries = find_binaries()
    rounds = []
    for number in range(arguments.rounds):
        print(f"round {number + 1} of {arguments.rounds}: {arguments.count} VMIs", flush=True)
        with tempfile.TemporaryDirectory(prefix="vmherd-bench-") as directory:
            plane = ControlPlane(Path(directory), binaries)
            plane.start()
            try:
                rounds.append(measure_burst(plane, arguments.count, rest_s=arguments.rest))
            finally:
                plane.stop()
    results = {
        "machine": {"python": platform.python_version(), "system": platform.platform()},
        "count": arguments.count,
        "rounds": rounds,
        "decoding": measure_decoding(),
        "metrics": measure_metrics(),
        "import_rss_mb": {"kubernetes_asyncio": import_rss_mb("kubernetes_asyncio.client")},
    }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(results, indent=2) + "\n")
    _print(results)
    print(f"\nall results: {arguments.output}")


def _print(results: dict[str, Any]) -> None:
    rounds, count = results["rounds"], results["count"]

    def median(*path: str) -> float:
        """Return the median of one number over all rounds. `path` has the keys of the number in a round's result."""
        return statistics.median(float(reduce(getitem, path, each)) for each in rounds)

    table = Table("figure", "controller", "bare loop", "ratio", title=f"{count} VMIs, median of {len(rounds)} rounds")
    for way, verb in (("up", "create"), ("down", "delete")):
        for label, key, scale, unit in (
            ("wall", "wall_s", 1.0, "s"),
            (f"CPU for each {verb}", "cpu_s", 1000 / count, "ms"),
        ):
            ours = median(way, key) * scale
            bare = median("bare", verb, key) * scale
            table.add_row(f"{verb}s: {label}", f"{ours:.3f} {unit}", f"{bare:.3f} {unit}", f"{ours / bare:.2f}")
        table.add_row(f"{verb}s: requests for each VMI, without Events", f"{median(way, 'requests_each'):.3f}")
    whole = results["import_rss_mb"]["kubernetes_asyncio"]
    table.add_row("RSS with all VMIs", f"{median('memory', 'full_mb'):.1f} MB")
    table.add_row("  (a process that only imports kubernetes_asyncio)", f"{whole:.1f} MB")
    table.add_row("RSS after the start", f"{median('memory', 'idle_mb'):.1f} MB")
    decoding = results["decoding"]
    table.add_row(f"decoding one VMI event of {decoding['event_bytes']:.0f} B", f"{decoding['decode_us']:.1f} us")
    table.add_row("storing it, with indexes", f"{decoding['store_us']:.1f} us")
    table.add_row("retained memory for each VMI", f"{decoding['bytes_kept']:.0f} B")
    for pools, scrape in results["metrics"]["scrape"].items():
        loop, thread = f"{scrape['page_ms']:.2f} ms", f"{scrape['render_ms']:.0f} ms"
        table.add_row(f"scrape of {pools} pools: on the event loop, on a thread", f"{loop}, {thread}")
        table.add_row("  size of the page", f"{scrape['bytes'] / 1e6:.2f} MB")
    table.add_row("metrics of one pass that creates a VM", f"{results['metrics']['pass_us']:.1f} us")
    Console().print(table)
    rest = rounds[-1]["rest"]
    print(f"without changes for {rest['seconds']:g}s: requests {rest['requests'] or 'none'}, CPU {rest['cpu_s']:.2f}s")


if __name__ == "__main__":
    main()
