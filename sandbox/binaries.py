"""Finds the programs of the control plane, and prints one line that tells where they come from.

The places are `KUBEBUILDER_ASSETS`, the cache, a download (`sandbox.releases`) and a build (`sandbox.gobuild`).
"""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from sandbox import gobuild
from sandbox.gobuild import BuildError
from sandbox.provide import is_program, print_line, provide
from sandbox.releases import KUBERNETES, OFFICIAL, DownloadError, Releases

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager")
ASSETS = "KUBEBUILDER_ASSETS"


class BinariesUnavailable(Exception):
    """Raised if a program is not available on this machine. `str()` returns instructions to get the program."""


Binaries: TypeAlias = Mapping[str, Path]


def cache_directory() -> Path:
    """The default is `vmherd` in the user's cache directory. The variable VMHERD_CACHE can name another directory."""
    if chosen := os.environ.get("VMHERD_CACHE"):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "vmherd"


def find_binaries(*, releases: Releases = OFFICIAL) -> Binaries:
    """Find each program, and print the source of each program. Raises BinariesUnavailable."""
    assets = os.environ.get(ASSETS)
    store = cache_directory() / "control-plane" / f"v{KUBERNETES}"
    found = _found_in(Path(assets), f"{ASSETS} ({assets})", PROGRAMS) if assets else {}
    note = f"; {ASSETS} ({assets}) has none of these programs" if assets and not found else ""
    found |= _found_in(store, f"the cache ({store})", _missing(found))
    if missing := _missing(found):
        found |= _fetch_or_build(store, missing, releases)
    print_line(f"control plane: {_sources(found)}{note}")
    return {name: found[name].path for name in PROGRAMS}


class _Found(Struct, frozen=True):
    path: Path
    source: str


def _found_in(directory: Path, source: str, names: tuple[str, ...]) -> dict[str, _Found]:
    return {name: _Found(directory / name, source) for name in names if is_program(directory / name)}


def _missing(found: Mapping[str, _Found]) -> tuple[str, ...]:
    return tuple(name for name in PROGRAMS if name not in found)


def _fetch_or_build(store: Path, missing: tuple[str, ...], releases: Releases) -> dict[str, _Found]:
    sources = dict.fromkeys(missing, f"the cache ({store})")  # another process may add a program in the meantime

    def make(name: str, target: Path) -> None:
        try:
            releases.fetch(name, target)
            sources[name] = "a download"
        except DownloadError as failure:
            print_line(f"{name} cannot be downloaded: {failure}")
            try:
                go = gobuild.find_go()
            except BuildError as error:
                raise BuildError(f"the download failed: {failure}; {error}") from error
            gobuild.build_kubernetes(go, name, target, version=KUBERNETES)
            sources[name] = "a build"

    try:
        return {name: _Found(provide(store / name, partial(make, name)), sources[name]) for name in missing}
    except BuildError as error:
        raise BinariesUnavailable(_unavailable_message(missing, str(error))) from error
    except OSError as error:
        raise BinariesUnavailable(
            _unavailable_message(missing, f"the cache {store} cannot be used: {error}")
        ) from error


def _sources(found: Mapping[str, _Found]) -> str:
    names_by_source: dict[str, list[str]] = {}
    for name in PROGRAMS:
        names_by_source.setdefault(found[name].source, []).append(name)
    return "; ".join(f"{', '.join(names)} from {source}" for source, names in names_by_source.items())


def _unavailable_message(missing: tuple[str, ...], why: str) -> str:
    return (
        f"{', '.join(missing)} for Kubernetes v{KUBERNETES} not found on this machine ({why}). Three ways to get them: "
        f"set {ASSETS} to a directory that contains {', '.join(PROGRAMS)}; "
        f"or connect this machine to {OFFICIAL.hosts} once; "
        f"or install Go {gobuild.GO_NAME} to build them from source"
    )
