"""Notes the machine during a round, and how much of it other programs used."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.case import Conditions
from benchmarks.process_tree import cpu_of_machine_s, cpu_s

ROOT = Path(__file__).resolve().parents[1]


def watch_machine() -> Callable[[], Conditions]:
    """Return a function that describes the machine from now to the call of the function."""
    started, machine_s, own_s = time.monotonic(), cpu_of_machine_s(), cpu_s(os.getpid())
    cores = os.cpu_count() or 1

    def describe() -> Conditions:
        available_s = (time.monotonic() - started) * cores
        others_s = (cpu_of_machine_s() - machine_s) - (cpu_s(os.getpid()) - own_s)
        return Conditions(
            date=datetime.now(UTC).strftime("%Y-%m-%d"),
            cores=cores,
            python=platform.python_version(),
            revision=_revision(),
            others=round(min(1.0, max(0.0, others_s / available_s)), 3) if available_s else 0.0,
        )

    return describe


def _revision() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
