"""Prints the path of the Python that the tests run on: that of the image (see `Dockerfile`), from a Go module.

The pin is the version and the checksum, which Go's checksum database confirms. Needs Go, Python 3.11 and no package.
"""

import gzip
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Final

VERSION: Final = "3.14.6"
MODULE: Final = f"github.com/kluctl/go-embed-python@v0.0.0-{VERSION}-20260610-1"
CHECKSUM: Final = "h1:oGUS7++Wm3LgxUfD6AmJgKbKQD2wdQFO9PzyJv6T+E4="
PROCESSORS: Final = {"x86_64": "amd64", "aarch64": "arm64"}
MINOR: Final = VERSION.rpartition(".")[0]
PROGRAM: Final = f"bin/python{MINOR}"

PIP: Final = "pip==26.3 --hash=sha256:f3b60b20ffaadd4415ed7957212a38ac63fa4c5fa375bd0f4a797777940fad13"
ENSUREPIP: Final = '''"""Installs pip from the wheel in this folder. `python -m venv` runs this module."""

import sys
from pathlib import Path

wheel = str(next(Path(__file__).parent.glob("*.whl")))
sys.path.insert(0, wheel)

from pip._internal.cli.main import main

sys.exit(main(["install", "--quiet", "--no-index", "--no-deps", wheel]))
'''
"""The module `ensurepip`. The build has neither this module nor pip."""


def python() -> Path:
    """Return the path of the program. Raise OSError or CalledProcessError if Go cannot get the module."""
    # The programs of the control plane are in the same cache (`sandbox.binaries`).
    cache = os.environ.get("VMHERD_CACHE") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "vmherd")
    target = Path(cache).expanduser() / "tools" / f"python-{VERSION}"
    if not (target / PROGRAM).exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        made = target.with_name(f".incomplete-{target.name}-{os.getpid()}")
        try:
            unpack(module() / "python/internal/data" / f"linux-{PROCESSORS[platform.machine()]}", made)
            add_pip(made / "lib" / f"python{MINOR}" / "ensurepip")
            made.rename(target)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return target / PROGRAM


def module() -> Path:
    """Return the folder of the downloaded module. Raise OSError if its checksum is not the pinned one."""
    command = ["go", "mod", "download", "-json", MODULE]
    done = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd="/").stdout)
    if done["Sum"] != CHECKSUM:
        raise OSError(f"{MODULE} has the checksum {done['Sum']}, not {CHECKSUM}")
    return Path(done["Dir"])


def unpack(source: Path, target: Path) -> None:
    """Copy the files that `files.json` of the module lists. Some of the files are compressed."""
    for entry in json.loads((source / "files.json").read_text())["files"]:
        path = target / entry["name"]
        if (source / entry["name"]).is_dir():
            path.mkdir(parents=True, exist_ok=True)
        elif link := entry.get("symlink"):
            path.symlink_to(link)
        else:
            packed = source / f"{entry['name']}.gz"
            content = (
                gzip.decompress(packed.read_bytes())
                if entry.get("compressed")
                else (source / entry["name"]).read_bytes()
            )
            path.write_bytes(content)
            path.chmod(entry["perm"] & 0o777)


def add_pip(target: Path) -> None:
    target.mkdir()
    (target / "__init__.py").touch()
    (target / "__main__.py").write_text(ENSUREPIP)
    with tempfile.TemporaryDirectory() as directory:
        pin = Path(directory, "pip.txt")
        pin.write_text(PIP)
        venv.create(Path(directory, "venv"), with_pip=True)
        pip = [str(Path(directory, "venv", "bin", "pip")), "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([*pip, "--require-hashes", "--requirement", str(pin), "--dest", str(target)], check=True)


if __name__ == "__main__":
    try:
        print(python())
    except (OSError, KeyError, subprocess.SubprocessError) as error:
        sys.exit(f"tools/python.py: cannot get Python {VERSION} from {MODULE}: {error}")
