"""Builds the control plane's programs from source, with Go, from the module in `sandbox/kube` that pins them.

Go's own caches are used as they are: what the machine has downloaded or compiled before is not done again. A build that
is interrupted leaves no process behind.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from sandbox.processes import launching
from sandbox.progress import shown

GO = (1, 26)
"""The release of Go that this Kubernetes is built with. The next one's JSON breaks the API server's OpenAPI."""

GO_NAME = ".".join(map(str, GO))

MODULE = Path(__file__).with_name("kube")
PACKAGES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
}
MINUTES = {"etcd": 1, "kube-apiserver": 7, "kube-controller-manager": 1}
"""On two cores, with nothing compiled before."""

_PACKAGE = re.compile(r"[\w.~/+-]+")
_LAST_LINES = 5


class BuildError(Exception):
    """There is no Go that will do, or it failed. `str()` says which."""


def find_go(environment: Mapping[str, str] = os.environ) -> str:
    """The Go on the PATH. Raises BuildError where there is none, or one of another release."""
    go = shutil.which("go", path=environment.get("PATH"))
    if go is None:
        raise BuildError("Go is not installed")
    command, environment = [go, "version"], _go_environment(environment)
    told = subprocess.run(command, env=environment, cwd=MODULE, capture_output=True, text=True, check=False)
    version = re.search(r"go(\d+)\.(\d+)\S*", told.stdout)
    if version is None:
        raise BuildError(f"{go} does not work: {(told.stderr or told.stdout).strip()}")
    if (int(version[1]), int(version[2])) != GO:
        raise BuildError(f"{go} is {version[0]}, and Kubernetes needs Go {GO_NAME}")
    return go


def build(go: str, program: str, target: Path, *, version: str, environment: Mapping[str, str] = os.environ) -> None:
    """Build one program into a file, stripped and stamped with Kubernetes' version. Raises BuildError."""
    package = PACKAGES[program]
    flags = ["-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags", f"-s -w {_stamp(version)}"]
    total = _count_packages(go, program, environment)
    title = f"building {program} (about {MINUTES[program]} min on two cores, the first time)"
    command = [go, "build", "-v", *flags, "-o", str(target), package]
    with shown(title, total=total, unit="packages") as advance, closing(_output(command, environment)) as lines:
        built = 0
        for line in lines:
            built += bool(_PACKAGE.fullmatch(line))
            advance(built)


def _count_packages(go: str, program: str, environment: Mapping[str, str]) -> int:
    """How many packages there are to build, at most. Fetches their source where the machine has it not yet."""
    modules = packages = 0
    command = [go, "list", "-mod=readonly", "-deps", PACKAGES[program]]
    with (
        shown(f"fetching the source of {program}", total=0, unit="modules") as advance,
        closing(_output(command, environment)) as lines,
    ):
        for line in lines:
            if line.startswith("go: downloading "):
                modules += 1
                advance(modules)
            else:
                packages += 1
    return packages


def _output(command: Sequence[str], environment: Mapping[str, str]) -> Generator[str, None, None]:
    """Run Go in the module, and give what it prints, line by line. Raises BuildError with its last words."""
    last_words: deque[str] = deque(maxlen=_LAST_LINES)
    with subprocess.Popen(
        launching(command),
        cwd=MODULE,
        env=_go_environment(environment),
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
                    last_words.append(line.strip())
                yield line.strip()
        except BaseException:
            # The whole group: Go starts a compiler for each package.
            os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode:
        raise BuildError(f"go {command[1]} failed: {' | '.join(last_words)}")


def _go_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The user's own, less what would build for another machine or from other sources than ours."""
    kept = {name: value for name, value in environment.items() if name not in ("GOOS", "GOARCH")}
    return {**kept, "CGO_ENABLED": "0", "GOWORK": "off"}


def _stamp(version: str) -> str:
    """The linker flags without which the programs call themselves v0.0.0, and kubectl warns of a skew."""
    major, minor, _ = version.split(".")
    facts = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(f"-X {package}.{name}={value}" for package in packages for name, value in facts.items())
