"""Builds the control plane of an older Kubernetes: `python -m tools.kube 1.30` prints its directory."""

import re
import sys
from contextlib import redirect_stdout
from pathlib import Path

from sandbox import gobuild
from sandbox.binaries import BinariesUnavailable, cache_directory, find_binaries
from sandbox.provide import provide


def assets(version: str) -> Path:
    """Return the directory with the programs, built if necessary. Raises BuildError, BinariesUnavailable."""
    module = Path(__file__).with_name(f"v{version}")
    if not module.is_dir():
        raise gobuild.BuildError(f"{module} does not exist: it would pin the version {version}")
    [pinned] = re.findall(r"\bk8s\.io/kubernetes v(\S+)", (module / "go.mod").read_text())
    store = cache_directory() / "control-plane" / f"v{pinned}"
    store.mkdir(parents=True, exist_ok=True)

    def build(target: Path) -> None:
        gobuild.build_kubernetes(gobuild.find_go(), target.name, target, version=pinned, module=module)

    for program in ("kube-apiserver", "kube-controller-manager"):
        provide(store / program, build)
    etcd = find_binaries()["etcd"]
    if not (store / "etcd").exists():
        (store / "etcd").symlink_to(etcd)
    return store


if __name__ == "__main__":
    try:
        with redirect_stdout(sys.stderr):
            directory = assets(sys.argv[1])
        print(directory)
    except (gobuild.BuildError, BinariesUnavailable) as error:
        sys.exit(f"kube: {error}")
