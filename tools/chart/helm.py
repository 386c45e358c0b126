"""Provides Helm 3 and Helm 4 of the versions in `tools/helm`, from the cache or from a build of some minutes."""

import re
import sys
from pathlib import Path

from sandbox.binaries import cache_directory
from sandbox.gobuild import BuildError, build, find_go
from sandbox.provide import provide

MODULES = Path(__file__).resolve().parent.parent / "helm"
MAJORS = (3, 4)


class HelmMissing(Exception):
    """Helm is not in the cache and cannot be built. `str()` says why."""


def find_helm(major: int) -> Path:
    """Return the path of this major version of Helm. Build Helm if it is not in the cache. Raises HelmMissing."""
    return provide(cache_directory() / "tools" / f"helm-{pinned(major)}", lambda target: _build(major, target))


def pinned(major: int) -> str:
    return _required(major, f"helm.sh/helm/v{major}")


def _required(major: int, module: str) -> str:
    source = MODULES / f"v{major}" / "go.mod"
    found = re.search(rf"{re.escape(module)} (v\S+)", source.read_text())
    if found is None:
        raise HelmMissing(f"{source} does not pin {module}")
    return found[1]


def _linker_variables(major: int) -> str:
    """Return the linker flags of Helm's releases. Helm 3 without them assumes an old Kubernetes."""
    variables = {"internal/version.version": pinned(major)}
    if major == 3:
        minor = _required(major, "k8s.io/client-go").split(".")[1]
        for package in ("pkg/lint/rules", "pkg/chartutil"):
            variables |= {f"{package}.k8sVersionMajor": "1", f"{package}.k8sVersionMinor": minor}
    return " ".join(f"-X helm.sh/helm/v{major}/{name}={value}" for name, value in variables.items())


def _build(major: int, target: Path) -> None:
    print(f"building Helm {pinned(major)}", file=sys.stderr, flush=True)
    package = f"helm.sh/helm/v{major}/cmd/helm"
    try:
        build(find_go(), package, target, MODULES / f"v{major}", linker_flags=_linker_variables(major))
    except BuildError as error:
        raise HelmMissing(f"Helm {pinned(major)} is not in the cache and cannot be built: {error}") from error


if __name__ == "__main__":
    try:
        for each in MAJORS:
            print(find_helm(each))
    except HelmMissing as error:
        sys.exit(str(error))
