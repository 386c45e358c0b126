"""The plugin for krew: an archive for each platform, and the manifest.

Python loads extension modules only from files, so the plugin is a directory and not a zip file (a zipapp). It has the
extension modules of one package for each supported Python: their names contain the Python.
"""

import hashlib
import re
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

import yaml

from tools.release.packages import tar_gz
from tools.release.project import Project, run

NAME = "kubectl-vmherd"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = {
    "linux-amd64": "x86_64-manylinux_2_28",
    "linux-arm64": "aarch64-manylinux_2_28",
    "darwin-amd64": "x86_64-apple-darwin",
    "darwin-arm64": "aarch64-apple-darwin",
}
COMPILED = "msgspec"
"""The package that needs its extension modules. The others work without, and those would be most of the archive."""

OLDEST_MACOS = "11.0"
UNUSED = ("client/api", "client/models", "dynamic", "leaderelection", "stream", "utils", "watch")
"""The generated client of kubernetes_asyncio: 25 MB that the project does not use (see `import_loaders`)."""

LEFT_OUT = shutil.ignore_patterns(".lock", "bin", "RECORD", "INSTALLER", "REQUESTED", "*.c", "*.h", "*.pyx", "*.pxd")
"""What an installer writes, and sources in C."""

HERE = Path(__file__).parent


def archive(uv: Path, platform: str, wheel: Path, *, source: Path, scratch: Path, epoch: int) -> bytes:
    directory, library = scratch / platform, scratch / platform / "lib"
    lock = source / ".ci" / "requirements-plugin.txt"
    [pin] = re.findall(rf"^{COMPILED}==.*(?:\n +--hash=.*)+", lock.read_text(), re.MULTILINE)
    compiled = scratch / f"{COMPILED}.txt"
    compiled.parent.mkdir(exist_ok=True)
    compiled.write_text(pin.rstrip(" \\"))
    for version in PYTHONS:
        target = scratch / f"{platform}-{version}"
        run(
            *(uv, "pip", "install", "--quiet", "--no-config", "--target", target, "--no-deps", "--require-hashes"),
            *("--only-binary", ":all:", "--python-version", version, "--python-platform", PLATFORMS[platform]),
            *("--requirement", lock if version == PYTHONS[0] else compiled),
            MACOSX_DEPLOYMENT_TARGET=OLDEST_MACOS,
        )
        shutil.copytree(target, library, ignore=LEFT_OUT, dirs_exist_ok=True)
    for path in library.rglob("*.so"):
        if path.parent.name != COMPILED:
            path.unlink()
    for name in UNUSED:
        shutil.rmtree(library / "kubernetes_asyncio" / name)
    with zipfile.ZipFile(wheel) as content:
        content.extractall(library)
    shutil.copy(source / "LICENSE", directory)
    shutil.copy(HERE / "launcher.py", directory / NAME)
    (directory / NAME).chmod(0o755)
    return tar_gz(directory, epoch)


def archive_name(project: Project, platform: str) -> str:
    return f"{NAME}-{project.version}-{platform}.tar.gz"


def manifest(project: Project, archives: Mapping[str, bytes]) -> str:
    text = Template((HERE / "krew.yaml").read_text()).substitute(vars(project))
    content: dict[str, Any] = yaml.safe_load(text)
    content["spec"]["platforms"] = [
        {
            "selector": {"matchLabels": dict(zip(("os", "arch"), platform.split("-"), strict=True))},
            "uri": project.download(name := archive_name(project, platform)),
            "sha256": hashlib.sha256(archives[name]).hexdigest(),
            "bin": NAME,
        }
        for platform in PLATFORMS
    ]
    return yaml.safe_dump(content, sort_keys=False, width=120)
