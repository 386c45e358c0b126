"""The image as its Dockerfile makes it. buildah builds it, without an engine and without a registry.

If the pinned base image cannot be pulled, another base image takes its place: a few of Debian's packages, and the
Python that the tests of continuous integration run on (`tools/python.py`).
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from sandbox.binaries import cache_directory
from sandbox.provide import locked
from tests.cluster import skip_or_fail
from tests.packages import apt_get, need
from tools.generated import ROOT
from tools.python import MINOR, python

BASE, PAUSE, IMAGE = (f"localhost/{name}:1" for name in ("vmherd-base", "vmherd-pause", "vmherd"))
PACKAGES = ("busybox-static", "libc6", "libgcc-s1", "netbase")
PULLED_WITHIN_S, BUILT_WITHIN_S = 60, 400
PINNED = re.compile(r"^ARG PYTHON_IMAGE=(\S+)$", re.MULTILINE)


class Image(Struct, frozen=True):
    """An image in buildah's storage, and the settings that the containers get."""

    name: str
    settings: dict[str, Any]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command as in a container of the image, without the network."""
        container = buildah("from", self.name).strip()
        try:
            return _buildah("run", "--isolation", "chroot", container, "--", *command)
        finally:
            buildah("rm", container)

    def save(self, archive: Path) -> Path:
        archive.unlink(missing_ok=True)
        buildah("push", "--quiet", self.name, f"oci-archive:{archive}:{self.name}")
        return archive


def built() -> Image:
    """The image of the Dockerfile. Skip the test if this machine cannot build it. In CI, fail the test."""
    if os.geteuid():
        skip_or_fail("the image is built with buildah, and only root can do that without settings")
    need("buildah", lambda: shutil.which("buildah") is not None)
    return _built()


def base() -> Image:
    """The base image on which `built` builds."""
    return Image(_base(), {})


def pause() -> Image:
    """The image of a Pod's first container. It contains only a program that sleeps."""
    need("busybox-static", lambda: Path("/bin/busybox").exists())
    with locked(_storage() / ".lock", "builds an image"):
        if not _exists(PAUSE):
            container = buildah("from", "scratch").strip()
            buildah("copy", container, "/bin/busybox", "/busybox")
            buildah("config", "--entrypoint", '["/busybox", "sleep", "2147483647"]', container)
            buildah("commit", "--rm", container, PAUSE)
    return Image(PAUSE, {})


@cache
def _built() -> Image:
    """One worker of a run builds the image, and the others use it."""
    run, last = os.environ.get("PYTEST_XDIST_TESTRUNUID", ""), _storage() / ".built-in"
    with locked(_storage() / ".lock", "builds an image"):
        if not run or not last.exists() or last.read_text() != run:
            last.unlink(missing_ok=True)
            _build()
            last.write_text(run)
        return Image(IMAGE, json.loads(buildah("inspect", "--type", "image", IMAGE))["OCIv1"]["config"])


def _build() -> None:
    with tempfile.TemporaryDirectory() as directory:
        settings = Path(directory, "pip.conf")
        settings.write_text(_pip_settings())
        mounts = [settings, *(Path(path) for path in (os.environ.get("PIP_CERT", ""),) if path)]
        volumes = [f"--volume={path}:{'/etc/pip.conf' if path == settings else path}:ro" for path in mounts]
        buildah(
            *("build", "--quiet", "--isolation", "chroot", "--network", "host", "--layers", *volumes),
            *("--build-arg", f"PYTHON_IMAGE={_base()}", "--tag", IMAGE, str(ROOT)),
        )


def _pip_settings() -> str:
    """pip's settings of this machine. They are no part of the image."""
    found = {name[4:].lower(): value for name, value in os.environ.items() if name.startswith("PIP_")}
    return "[global]\n" + "".join(f"{name.replace('_', '-')} = {value}\n" for name, value in found.items())


@cache
def _base() -> str:
    """The base image that the Dockerfile pins, or the one that takes its place."""
    [pinned] = PINNED.findall((ROOT / "Dockerfile").read_text())
    if _buildah("pull", "--quiet", "--policy", "missing", pinned, within_s=PULLED_WITHIN_S).returncode == 0:
        return str(pinned)
    if not _exists(BASE):
        with tempfile.TemporaryDirectory() as directory:
            _make_base(Path(directory))
    return BASE


def _make_base(directory: Path) -> None:
    tree, packages = directory / "tree", directory / "packages"
    packages.mkdir()
    apt_get("download", *PACKAGES, cwd=packages)
    for package in packages.iterdir():
        _run("dpkg", "-x", str(package), str(tree))
    for name in _run(str(tree / "bin" / "busybox"), "--list").stdout.split():
        if not (tree / "bin" / name).exists():
            (tree / "bin" / name).symlink_to("busybox")
    (tree / "tmp").mkdir()
    (tree / "tmp").chmod(0o1777)
    (tree / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    shutil.copytree(python().parent.parent, tree / "usr" / "local", symlinks=True, dirs_exist_ok=True)
    _run(str(tree / "usr" / "local" / "bin" / f"python{MINOR}"), "-I", "-m", "ensurepip")
    container = buildah("from", "scratch").strip()
    buildah("copy", container, str(tree), "/")
    buildah("config", "--env", "PATH=/usr/local/bin:/usr/bin:/bin", container)
    buildah("commit", "--rm", container, BASE)


def _exists(name: str) -> bool:
    return _buildah("inspect", "--type", "image", name).returncode == 0


def buildah(*arguments: str, within_s: float = BUILT_WITHIN_S) -> str:
    done = _buildah(*arguments, within_s=within_s)
    if done.returncode:
        raise RuntimeError(f"buildah {' '.join(arguments)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def _buildah(command: str, *arguments: str, within_s: float = BUILT_WITHIN_S) -> subprocess.CompletedProcess[str]:
    """In a mount namespace of its own, a killed buildah leaves no mount behind."""
    places = ["--root", str(_storage()), "--runroot", f"{_storage()}-run"]
    return _run("unshare", "--mount", "buildah", *places, command, *arguments, within_s=within_s, check=False)


def _run(*command: str, within_s: float = BUILT_WITHIN_S, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=within_s, check=check)


def _storage() -> Path:
    storage = cache_directory() / "images"
    storage.mkdir(parents=True, exist_ok=True)
    return storage
