"""Builds programs from source with Go, which has its own caches. `sandbox/kube` pins the control plane."""

import os
import re
import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path

from sandbox.processes import with_death_signal
from sandbox.provide import progress_display

GO = (1, 26)
"""The Go release (major, minor) for this Kubernetes. With the next one, the OpenAPI documents are broken."""

GO_NAME = ".".join(map(str, GO))

MODULE = Path(__file__).with_name("kube")
PACKAGES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kubelet": "k8s.io/kubernetes/cmd/kubelet",
    "kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy",
}
MINUTES = {"kube-apiserver": 7}
"""The build times of programs that need more than a minute, on two cores and with empty caches."""

_PACKAGE = re.compile(r"[\w.~/+-]+")
_LAST_LINES = 5


class BuildError(Exception):
    """Raised if no suitable Go is found or if Go fails. `str()` returns the reason."""


def find_go() -> str:
    """Return the path of `go`. Raises BuildError if it is missing, does not run, or is another release than `GO`."""
    go = shutil.which("go")
    if go is None:
        raise BuildError("Go is not installed")
    command, environment = [go, "version"], _go_environment()
    result = subprocess.run(command, env=environment, cwd=MODULE, capture_output=True, text=True, check=False)
    version = re.search(r"go(\d+)\.(\d+)\S*", result.stdout)
    if version is None:
        raise BuildError(f"{go} does not work: {(result.stderr or result.stdout).strip()}")
    if (int(version[1]), int(version[2])) != GO:
        raise BuildError(f"{go} is {version[0]}, but Kubernetes needs Go {GO_NAME}")
    return go


def build_kubernetes(go: str, program: str, target: Path, *, version: str, module: Path = MODULE) -> None:
    """Build a program of Kubernetes or etcd that reports `version`, and write it to `target`. Raises BuildError."""
    title = f"building {program} (about {MINUTES.get(program, 1)} min on two cores, the first time)"
    with progress_display(title, total=0, unit="modules and packages") as advance:
        build(go, PACKAGES[program], target, module, linker_flags=_version_flags(version), advance=advance)


def build(
    go: str,
    package: str,
    target: Path,
    module: Path,
    *,
    linker_flags: str = "",
    advance: Callable[[int], None] = lambda _: None,
) -> None:
    """Build a program of a Go module that pins it, without debug symbols. Raises BuildError.

    `advance` gets the number of downloaded modules and compiled packages.
    """
    flags = ["-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags", f"-s -w {linker_flags}"]
    command = [go, "build", "-v", *flags, "-o", str(target), package]
    with closing(_run_go(command, module)) as lines:
        for number, _ in enumerate(lines, start=1):
            advance(number)


def _run_go(command: Sequence[str], module: Path) -> Generator[str, None, None]:
    """Run Go in the directory of the module and yield each line of its output. Raises BuildError with the last ones."""
    last_lines: deque[str] = deque(maxlen=_LAST_LINES)
    with subprocess.Popen(
        with_death_signal(command),
        cwd=module,
        env=_go_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        process_group=0,
    ) as process:
        try:
            for line in process.stdout or ():
                if not _PACKAGE.fullmatch(line.strip()):
                    last_lines.append(line.strip())
                yield line.strip()
        except BaseException:
            # Kill the whole process group, because Go starts a compiler process for each package.
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        raise BuildError(f"go {command[1]} failed: {' | '.join(last_lines)}")


def _go_environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("GOOS", "GOARCH")}
    return {**kept, "CGO_ENABLED": "0", "GOWORK": "off"}


def _version_flags(version: str) -> str:
    """Return the linker flags for the version: without them, kubectl prints warnings about the version v0.0.0."""
    major, minor, _ = version.split(".")
    variables = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(f"-X {package}.{name}={value}" for package in packages for name, value in variables.items())
