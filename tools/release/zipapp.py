"""The plugin as one file: `kubectl-vmherd`, a zip file that Python runs.

Of all packages, only msgspec has no fallback in Python for its extension module. So the file has the extension module
of msgspec for each supported Python and platform, and all other packages without their extension modules. The names of
extension modules contain the Python and the platform, so that Python finds the right module. On macOS the name does not
contain the processor, so one module is for both processors (a universal binary).

pex and shiv were tried in the place of `bootstrap`. A start with pex needs 1.0 s of CPU time, ours 0.2 s, and kubectl
starts the plugin for each completion; if no Python fits, pex prints ten lines. With shiv, another Python ends with a
traceback, and so does a start without a writable cache. With all packages for each Python and platform, as pex packs
them, the file has 45 MB instead of 6.
"""

import hashlib
import re
import struct
from pathlib import Path

from tools.release.archives import File, read_zip, zipped
from tools.release.project import run

NAME = "kubectl-vmherd"
COMPILED = "msgspec"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = (
    ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"),
    ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"),
    ("macosx_11_0_x86_64",),
    ("macosx_11_0_arm64",),
)
SHEBANG = b"#!/usr/bin/env python3\n"
BINARY = re.compile(r"\.(so|pyd|dylib)$")
SOURCES = re.compile(r"\.(c|h|pyx|pxd|pyi)$")
INSTALLER = re.compile(r"\.dist-info/(RECORD|WHEEL|INSTALLER|REQUESTED)$")
UNUSED = re.compile(r"kubernetes_asyncio/(client/(api|models)|dynamic|leaderelection|stream|utils|watch|test)/")
"""The generated client of kubernetes_asyncio: 25 MB that the project does not use (see `informers.http.loaders`)."""

UNIVERSAL, PAGE = 0xCAFEBABE, 1 << 14
"""The first four bytes of a universal binary, and the size of a page, at whose start each of its parts begins."""

BOOTSTRAP = Path(__file__).with_name("bootstrap.py")


def make(python: Path, wheel: bytes, lock: Path, scratch: Path, epoch: int) -> bytes:
    """Return the zipapp with this wheel of the project and the packages that the lock file pins."""
    wheels = download(python, lock, scratch)
    files: dict[str, File] = {}
    for name, content in sorted({**wheels, "vmherd": wheel}.items()):
        for path, file in kept(read_zip(content), compiled=name.startswith(f"{COMPILED}-")).items():
            both = path in files and path.endswith("-darwin.so")
            files[path] = File(universal(files[path].content, file.content)) if both else file
    digest = hashlib.sha256(b"".join(f"{name} {_digest(file)}\n".encode() for name, file in sorted(files.items())))
    files = {
        "__main__.py": File(BOOTSTRAP.read_bytes()),
        "BUILD": File(f"{digest.hexdigest()[:16]}\n".encode()),
        **dict(sorted(files.items())),
    }
    return SHEBANG + zipped(files, epoch)


def kept(files: dict[str, File], *, compiled: bool) -> dict[str, File]:
    """Return the files of a wheel that the zipapp needs."""
    dropped = [SOURCES, INSTALLER, UNUSED] if compiled else [SOURCES, INSTALLER, UNUSED, BINARY]
    return {name: File(file.content) for name, file in files.items() if not any(p.search(name) for p in dropped)}


def universal(*modules: bytes) -> bytes:
    """Return one extension module for macOS that has these modules, each for another processor."""
    header, content = struct.pack(">II", UNIVERSAL, len(modules)), b""
    for module in modules:
        processor, model = struct.unpack_from("<II", module, 4)
        content += bytes(-len(content) % PAGE)
        header += struct.pack(">5I", processor, model, PAGE + len(content), len(module), PAGE.bit_length() - 1)
        content += module
    return header.ljust(PAGE, b"\0") + content


def download(python: Path, lock: Path, scratch: Path) -> dict[str, bytes]:
    """Return the wheels of all pinned packages for one Python, and the wheels of `COMPILED` for all Pythons.

    pip checks the hash of each wheel.
    """
    only = scratch / "compiled.txt"
    only.write_text(pin(lock.read_text(), COMPILED))
    found: dict[str, bytes] = {}
    for version in PYTHONS:
        for number, platforms in enumerate(PLATFORMS):
            first = version == PYTHONS[0] and number == 0
            target = scratch / f"{version}-{number}"
            selected = [word for each in platforms for word in ("--platform", each)]
            run(
                *(python, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"),
                *("--only-binary", ":all:", "--implementation", "cp", "--python-version", version, *selected),
                *("--dest", target, "--requirement", lock if first else only),
            )
            found |= {path.name: path.read_bytes() for path in target.glob("*.whl")}
    return found


def pin(lock: str, package: str) -> str:
    """Return the lines of a lock file that pin this package."""
    found = re.search(rf"^{re.escape(package)}==.*(\n[ ]+--hash=.*)+", lock, re.MULTILINE)
    if found is None:
        raise ValueError(f"the lock file does not pin {package}")
    return found[0].rstrip(" \\") + "\n"


def _digest(file: File) -> str:
    return hashlib.sha256(file.content).hexdigest()
