"""Builds the programs of the project's own Go modules. A program is built once for each state of its module."""

import hashlib
import os
import subprocess
from pathlib import Path

from sandbox.binaries import cache_directory
from sandbox.gobuild import BuildError, find_go
from sandbox.provide import provide

BUILT_WITHIN_S = 600


def find_or_build(module: Path) -> Path:
    """Return the path of the module's program in the cache. Raises BuildError."""
    sources = hashlib.sha256(b"".join((module / name).read_bytes() for name in ("go.mod", "go.sum", "main.go")))
    name = f"{module.name}-{sources.hexdigest()[:12]}"
    return provide(cache_directory() / "tools" / name, lambda target: _build(module, target))


def _build(module: Path, target: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("GOOS", "GOARCH")}
    done = subprocess.run(
        [find_go(), "build", "-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", str(target), "."],
        cwd=module,
        env={**environment, "CGO_ENABLED": "0", "GOWORK": "off"},
        capture_output=True,
        text=True,
        timeout=BUILT_WITHIN_S,
        check=False,
    )
    if done.returncode:
        raise BuildError(f"{module} cannot be built: {done.stderr.strip()[-2000:]}")
