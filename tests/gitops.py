"""Evaluates health checks with the interpreters of Argo CD and Flux: gopher-lua and cel-go.

The Go module `tools/gitops` pins both. The program is built once for each state of the module, and is kept in the
cache. `python -m tests.gitops` builds the program from the command line.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sandbox.binaries import cache_directory
from sandbox.gobuild import BuildError, find_go
from sandbox.provide import provide
from tests.cluster import skip_or_fail

MODULE = Path(__file__).resolve().parent.parent / "tools" / "gitops"
BUILT_WITHIN_S = 600
EVALUATED_WITHIN_S = 30


def evaluate(tasks: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return the result of each task. A task has an `object`, and a script `lua` or an expression `cel`.

    Skip the test if the program cannot be built. In CI, fail the test.
    """
    lines = "".join(f"{json.dumps(task)}\n" for task in tasks)
    try:
        program = find_or_build()
    except BuildError as error:
        skip_or_fail(str(error))
    done = subprocess.run(
        [str(program)], input=lines, capture_output=True, text=True, timeout=EVALUATED_WITHIN_S, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def find_or_build() -> Path:
    """Return the path of the program. Raises BuildError."""
    sources = hashlib.sha256(b"".join((MODULE / name).read_bytes() for name in ("go.mod", "go.sum", "main.go")))
    return provide(cache_directory() / "tools" / f"gitops-{sources.hexdigest()[:12]}", _build)


def _build(target: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("GOOS", "GOARCH")}
    done = subprocess.run(
        [find_go(), "build", "-mod=readonly", "-buildvcs=false", "-trimpath", "-o", str(target), "."],
        cwd=MODULE,
        env={**environment, "CGO_ENABLED": "0", "GOWORK": "off"},
        capture_output=True,
        text=True,
        timeout=BUILT_WITHIN_S,
        check=False,
    )
    if done.returncode:
        raise BuildError(f"{MODULE} cannot be built: {done.stderr.strip()[-2000:]}")


if __name__ == "__main__":
    try:
        print(find_or_build())
    except BuildError as error:
        sys.exit(str(error))
