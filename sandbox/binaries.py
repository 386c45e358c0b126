"""Where the control plane's programs come from. One place decides, and says so in one line.

1. `KUBEBUILDER_ASSETS`, a directory that holds them, as tests of controllers know it;
2. the cache, `~/.cache/vmherd/control-plane/<version>/`;
3. the releases' own downloads, checked against the checksums published beside them;
4. a build from source, with Go, from the module in `sandbox/kube` that pins the versions.

A program that one source lacks is looked for in the next. Downloads and builds are made beside the cache and renamed
into it when they are whole, by one process at a time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

KUBERNETES = "1.37.1"
ETCD = "3.7.0"
GO = (1, 26)
"""The Go release that this Kubernetes is built with; a later one may change what its JSON means."""

MODULE = Path(__file__).parent / "kube"
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager")
PACKAGES = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
}
BUILD_MINUTES = {"etcd": 1, "kube-apiserver": 7, "kube-controller-manager": 2}

KUBERNETES_RELEASE = f"https://dl.k8s.io/release/v{KUBERNETES}/bin"
ETCD_RELEASE = f"https://github.com/etcd-io/etcd/releases/download/v{ETCD}"
CONNECT_S = 5.0


class BinariesUnavailable(Exception):
    """The programs cannot be had on this machine. `str()` names the ways to get them."""


class Binaries(Struct, frozen=True):
    """The three programs. `source` says in a phrase where they come from."""

    paths: Mapping[str, Path]
    source: str

    def path(self, program: str) -> Path:
        return self.paths[program]


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Where what was downloaded or built is kept between runs; outside every checkout."""
    if chosen := environment.get("VMHERD_CACHE"):
        return Path(chosen).expanduser()
    base = environment.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "vmherd"


def find_binaries(environment: Mapping[str, str] = os.environ, *, may_fetch: bool = True) -> Binaries:
    """The programs, from the first source that has each. Raises BinariesUnavailable.

    `may_fetch=False` looks only at what is there already.
    """
    paths: dict[str, Path] = {}
    sources: list[str] = []

    def look_in(directory: Path, source: str) -> None:
        found = {name: directory / name for name in PROGRAMS if name not in paths and _usable(directory / name)}
        if found:
            paths.update(found)
            sources.append(source)

    if assets := environment.get("KUBEBUILDER_ASSETS"):
        look_in(Path(assets), "KUBEBUILDER_ASSETS")
    store = cache_directory(environment) / "control-plane" / f"v{KUBERNETES}"
    look_in(store, "cache")
    missing = [name for name in PROGRAMS if name not in paths]
    if missing:
        if not may_fetch:
            raise BinariesUnavailable(_ways(missing, "nothing was fetched or built"))
        look_in(store, _fill(store, missing))
    return Binaries({name: paths[name] for name in PROGRAMS}, f"control plane v{KUBERNETES} from {', '.join(sources)}")


def _fill(store: Path, missing: list[str]) -> str:
    """Bring the missing programs into the cache, and say how."""
    with _one_at_a_time(store):
        missing = [name for name in missing if not _usable(store / name)]
        if not missing:
            return "cache"
        try:
            for name in missing:
                with _arriving(store / name) as target:
                    _download(name, target)
        except (OSError, urllib.error.URLError, ValueError) as error:
            why_not = str(error)
        else:
            return "download"
        missing = [name for name in missing if not _usable(store / name)]
        go = _go(missing, f"download failed: {why_not}")
        for name in missing:
            with _arriving(store / name) as target:
                _build(go, name, target)
        return "a build from source"


def _download(name: str, target: Path) -> None:
    """Fetch one program of a release and check it. Raises OSError, URLError or ValueError."""
    machine = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}.get(platform.machine())
    system = platform.system().lower()
    if machine is None or system != "linux":
        raise ValueError(f"no release for {system} on {platform.machine()}")
    if name != "etcd":
        url = f"{KUBERNETES_RELEASE}/{system}/{machine}/{name}"
        expected = _read(f"{url}.sha256").decode().split()[0]
        _save(url, target, expected)
        return
    archive = f"etcd-v{ETCD}-{system}-{machine}.tar.gz"
    sums = _read(f"{ETCD_RELEASE}/SHA256SUMS").decode()
    expected = next(line.split()[0] for line in sums.splitlines() if line.endswith(archive))
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        packed = Path(scratch) / archive
        _save(f"{ETCD_RELEASE}/{archive}", packed, expected)
        with tarfile.open(packed) as tar:
            member = tar.extractfile(f"{archive.removesuffix('.tar.gz')}/etcd")
            if member is None:
                raise ValueError(f"{archive} holds no etcd")
            with target.open("wb") as out:
                shutil.copyfileobj(member, out)


def _read(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=CONNECT_S) as answer:
        content: bytes = answer.read()
        return content


def _save(url: str, target: Path, expected: str) -> None:
    _say(f"fetching {url}")
    digest = hashlib.sha256()
    with urllib.request.urlopen(url, timeout=CONNECT_S) as answer, target.open("wb") as out:
        while chunk := answer.read(1 << 20):
            digest.update(chunk)
            out.write(chunk)
    if digest.hexdigest() != expected:
        raise ValueError(f"{url} has checksum {digest.hexdigest()}, the release says {expected}")


def _go(missing: list[str], why: str) -> str:
    """The Go toolchain. Raises BinariesUnavailable where there is none, or not the right one."""
    go = shutil.which("go")
    if go is None:
        raise BinariesUnavailable(_ways(missing, f"{why}; Go is not installed"))
    told = subprocess.run([go, "version"], capture_output=True, text=True, check=False, cwd=MODULE).stdout
    match = re.search(r"go(\d+)\.(\d+)", told)
    if match is None or (int(match[1]), int(match[2])) != GO:
        wanted = ".".join(map(str, GO))
        raise BinariesUnavailable(_ways(missing, f"{why}; it builds with Go {wanted}, not with {told.strip()}"))
    return go


def _build(go: str, name: str, target: Path) -> None:
    """Build one program, stripped and stamped with its version, so that kubectl sees no skew."""
    _say(f"building {name} from source (about {BUILD_MINUTES[name]} min on two cores, once)")
    major, minor, _ = KUBERNETES.split(".")
    stamp = {"gitVersion": f"v{KUBERNETES}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    flags = " ".join(f"-X k8s.io/component-base/version.{key}={value}" for key, value in stamp.items())
    command = [go, "build", "-trimpath", "-ldflags", f"-s -w {flags}", "-o", str(target), PACKAGES[name]]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false"}
    done = subprocess.run(command, cwd=MODULE, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BinariesUnavailable(_ways([name], f"go build failed:\n{done.stderr[-2000:].strip()}"))


@contextmanager
def _arriving(path: Path) -> Iterator[Path]:
    """A file beside its place, moved there when it is whole."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".arriving-") as scratch:
        target = Path(scratch) / path.name
        yield target
        target.chmod(0o755)
        target.replace(path)


@contextmanager
def _one_at_a_time(directory: Path) -> Iterator[None]:
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _usable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _ways(missing: list[str], why: str) -> str:
    return (
        f"no {', '.join(missing)} of Kubernetes v{KUBERNETES} on this machine ({why}). Three ways to get them: "
        f"set KUBEBUILDER_ASSETS to a directory that holds {', '.join(PROGRAMS)}; "
        "or let this machine reach the internet once, for the published releases; "
        f"or install Go {'.'.join(map(str, GO))}, to build them from source"
    )


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
