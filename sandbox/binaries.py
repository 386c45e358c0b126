"""Where the control plane's programs come from. One place decides, and says so in one line.

1. `KUBEBUILDER_ASSETS`, a directory that holds them, as tests of controllers know it;
2. the cache, `~/.cache/vmherd/control-plane/<version>/`;
3. a download of the releases (`sandbox.releases`);
4. a build from source, with Go, from the module in `sandbox/kube` that pins the versions (`sandbox.gobuild`).

A program that one source lacks is looked for in the next. Downloads and builds are made beside the cache and renamed
into it when they are whole, by one process at a time.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from sandbox import gobuild
from sandbox.gobuild import BuildError
from sandbox.progress import say
from sandbox.releases import KUBERNETES, OFFICIAL, DownloadError, Releases

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager")
ASSETS = "KUBEBUILDER_ASSETS"
_ARRIVING = ".arriving-"


class BinariesUnavailable(Exception):
    """The programs cannot be had on this machine. `str()` names the ways to get them."""


class Binaries(Struct, frozen=True):
    """The three programs, by name."""

    paths: Mapping[str, Path]

    def path(self, program: str) -> Path:
        return self.paths[program]


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Where what was downloaded or built is kept between runs; outside every checkout."""
    if chosen := environment.get("VMHERD_CACHE"):
        return Path(chosen).expanduser()
    base = environment.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "vmherd"


def find_binaries(
    environment: Mapping[str, str] = os.environ, *, releases: Releases = OFFICIAL, may_fetch: bool = True
) -> Binaries:
    """The programs, from the first source that has each; says which. Raises BinariesUnavailable.

    `may_fetch=False` looks only at what is there already.
    """
    assets = environment.get(ASSETS)
    store = cache_directory(environment) / "control-plane" / f"v{KUBERNETES}"
    found = _found_in(Path(assets), f"{ASSETS} ({assets})", PROGRAMS) if assets else {}
    remark = f"; {ASSETS} ({assets}) has none of them" if assets and not found else ""
    found |= _found_in(store, f"the cache ({store})", _missing(found))
    if missing := _missing(found):
        if not may_fetch:
            raise BinariesUnavailable(_ways(missing, "not looked for elsewhere"))
        found |= _fetched(store, missing, releases, environment)
    say(f"control plane: {_sources(found)}{remark}")
    return Binaries({name: found[name].path for name in PROGRAMS})


class _Found(Struct, frozen=True):
    path: Path
    source: str


def _found_in(directory: Path, source: str, names: tuple[str, ...]) -> dict[str, _Found]:
    return {name: _Found(directory / name, source) for name in names if _is_program(directory / name)}


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _missing(found: Mapping[str, _Found]) -> tuple[str, ...]:
    return tuple(name for name in PROGRAMS if name not in found)


def _fetched(
    store: Path, missing: tuple[str, ...], releases: Releases, environment: Mapping[str, str]
) -> dict[str, _Found]:
    """The missing programs, brought into the cache: downloaded or, where that fails, built."""
    try:
        with _one_at_a_time(store):
            found = _found_in(store, f"the cache ({store})", missing)  # whoever had the lock before us brought these
            wanted = [name for name in missing if name not in found]
            try:
                for name in wanted:
                    with _arriving(store / name) as path:
                        releases.fetch(name, path)
                    found[name] = _Found(store / name, "a download")
            except DownloadError as error:
                say(f"{name} cannot be downloaded: {error}")
                go = _go_instead(environment, missing, error)
                for name in wanted:
                    if name not in found:
                        with _arriving(store / name) as path:
                            gobuild.build(go, name, path, version=KUBERNETES, environment=environment)
                        found[name] = _Found(store / name, "a build")
            return found
    except BuildError as error:
        raise BinariesUnavailable(_ways(missing, str(error))) from error
    except OSError as error:
        raise BinariesUnavailable(_ways(missing, f"the cache {store} cannot be used: {error}")) from error


def _go_instead(environment: Mapping[str, str], missing: tuple[str, ...], failure: DownloadError) -> str:
    try:
        return gobuild.find_go(environment)
    except BuildError as error:
        raise BinariesUnavailable(_ways(missing, f"the download failed: {failure}; {error}")) from error


@contextmanager
def _arriving(path: Path) -> Iterator[Path]:
    """A file beside its place, moved there when it is whole."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=_ARRIVING) as scratch:
        target = Path(scratch) / path.name
        yield target
        target.chmod(0o755)
        target.replace(path)


@contextmanager
def _one_at_a_time(store: Path) -> Iterator[None]:
    """Fill the cache alone, after whoever does so now; what others left half-done is removed."""
    store.mkdir(parents=True, exist_ok=True)
    with (store / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another process that brings the control plane into the cache")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for left in store.glob(f"{_ARRIVING}*"):
            shutil.rmtree(left, ignore_errors=True)
        yield


def _sources(found: Mapping[str, _Found]) -> str:
    """`etcd from a download, kube-apiserver and ... from the cache (...)`."""
    names_by_source: dict[str, list[str]] = {}
    for name in PROGRAMS:
        names_by_source.setdefault(found[name].source, []).append(name)
    return "; ".join(f"{', '.join(names)} from {source}" for source, names in names_by_source.items())


def _ways(missing: tuple[str, ...], why: str) -> str:
    return (
        f"no {', '.join(missing)} of Kubernetes v{KUBERNETES} on this machine ({why}). Three ways to get them: "
        f"set {ASSETS} to a directory that holds {', '.join(PROGRAMS)}; "
        f"or let this machine reach {OFFICIAL.hosts} once; "
        f"or install Go {gobuild.GO_NAME}, to build them from source"
    )
