"""Builds Go programs for tests: those of the project's own Go modules, and those that `tools/checks` pins.

A program is built once for each state of its module. `python -m tests.gomodules` builds the programs of `tools/checks`,
which are linters and a registry of images, and the interpreters of `tools/gitops`.
"""

import hashlib
import sys
from pathlib import Path

from sandbox.binaries import cache_directory
from sandbox.gobuild import BuildError, build, find_go
from sandbox.provide import provide
from tests.cluster import skip_or_fail

TOOLS = Path(__file__).resolve().parent.parent / "tools"
CHECKS = TOOLS / "checks"
GITOPS = TOOLS / "gitops"
PACKAGES = {
    "actionlint": "github.com/rhysd/actionlint/cmd/actionlint",
    "operator-verify": "github.com/operator-framework/api/cmd/operator-verify",
    "registry": "github.com/google/go-containerregistry/cmd/registry",
}


def find_or_build(module: Path, package: str = ".") -> Path:
    """Return the path of the module's program, or of one of its packages, in the cache. Raises BuildError."""
    names = ("go.mod", "go.sum", "main.go") if package == "." else ("go.mod", "go.sum")
    sources = hashlib.sha256(b"".join((module / name).read_bytes() for name in names))
    name = f"{module.name if package == '.' else package.rpartition('/')[2]}-{sources.hexdigest()[:12]}"
    return provide(cache_directory() / "tools" / name, lambda target: build(find_go(), package, target, module))


def check_or_skip(name: str, module: Path = CHECKS) -> Path:
    """Return the path of a module's program. If it cannot be built, skip the test. In CI, fail the test."""
    try:
        return find_or_build(module, PACKAGES.get(name, "."))
    except BuildError as error:
        skip_or_fail(str(error))


if __name__ == "__main__":
    try:
        for each in PACKAGES.values():
            print(find_or_build(CHECKS, each))
        print(find_or_build(GITOPS))
    except BuildError as failed:
        sys.exit(str(failed))
