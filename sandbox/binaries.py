"""Finds the programs of the control plane, and prints one line that tells where they come from.

The places are `KUBEBUILDER_ASSETS`, the cache, a download (`sandbox.releases`) and a build (`sandbox.gobuild`).
"""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TypeAlias

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
    of_user, cached = f"{ASSETS} ({assets})", f"the cache ({store})"
    sources = {name: cached for name in PROGRAMS if is_program(store / name)}
    if assets:
        sources |= {name: of_user for name in PROGRAMS if is_program(Path(assets) / name)}
    note = f"; {of_user} has none of these programs" if assets and of_user not in sources.values() else ""
    if missing := tuple(name for name in PROGRAMS if name not in sources):
        sources |= _fetch_or_build(store, missing, cached, releases)
    order = dict.fromkeys(sources[name] for name in PROGRAMS)
    told = (f"{', '.join(name for name in PROGRAMS if sources[name] == each)} from {each}" for each in order)
    print_line(f"control plane: {'; '.join(told)}{note}")
    return {name: (Path(assets) if assets and sources[name] == of_user else store) / name for name in PROGRAMS}


def _fetch_or_build(store: Path, missing: tuple[str, ...], cached: str, releases: Releases) -> dict[str, str]:
    """Write the missing programs to the store, and return the source of each program."""
    sources = dict.fromkeys(missing, cached)  # another process may add a program in the meantime

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
        for name in missing:
            provide(store / name, partial(make, name))
    except BuildError as error:
        raise BinariesUnavailable(_unavailable_message(missing, str(error))) from error
    except OSError as error:
        raise BinariesUnavailable(
            _unavailable_message(missing, f"the cache {store} cannot be used: {error}")
        ) from error
    return sources


def _unavailable_message(missing: tuple[str, ...], why: str) -> str:
    return (
        f"{', '.join(missing)} for Kubernetes v{KUBERNETES} not found on this machine ({why}). Three ways to get them: "
        f"set {ASSETS} to a directory that contains {', '.join(PROGRAMS)}; "
        f"or connect this machine to {OFFICIAL.hosts} once; "
        f"or install Go {gobuild.GO_NAME} to build them from source"
    )
