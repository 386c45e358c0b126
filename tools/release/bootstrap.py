"""The `__main__` of the zipapp kubectl-vmherd: unpacks the zip file into a cache, and runs the plugin from there.

One extension module has no Python version, and Python loads extension modules only from files. So the program runs from
a directory. Python also stores its compiled code there, so later runs start faster.

Every Python runs this file, also one that is too old for the plugin. So the file has the syntax of Python 3.4.
"""

import atexit
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from importlib import machinery

COMPILED = "msgspec/_core"
NAMES = ("python3.14", "python3.13", "python3.12", "python3.11")
TRIED = "KUBECTL_VMHERD_TRIED"


def main() -> int:
    archive = os.path.abspath(sys.path[0])
    with zipfile.ZipFile(archive) as content:
        if not fits(content.namelist()):
            return other_python(archive)
        directory = unpacked(content)
    sys.path[0] = directory
    if os.path.basename(sys.argv[0]) == "kubectl_complete-vmherd":
        from plugin.completion import main as run
    else:
        from plugin.cli import main as run
    return run()


def fits(names: "list[str]") -> bool:
    """Whether the archive has the extension module for this Python and this machine."""
    return any(COMPILED + suffix in names for suffix in machinery.EXTENSION_SUFFIXES)


def other_python(archive: str) -> int:
    """Run another Python of the PATH. If none fits, say so and return 1."""
    tried = os.environ.get(TRIED, "").split()
    for name in NAMES:
        path = shutil.which(name)
        # A name on the PATH may belong to a Python that is not installed.
        if (
            path
            and name not in tried
            and subprocess.call([path, "-c", "import zipfile"], stderr=subprocess.DEVNULL) == 0
        ):
            os.environ[TRIED] = " ".join(tried + [name])
            os.execv(path, [path, archive] + sys.argv[1:])
    message = "error: kubectl-vmherd needs CPython 3.11 to 3.14 on Linux (glibc) or on macOS, not {} {}.{} on {} {}"
    version = sys.version_info
    print(
        message.format(platform.python_implementation(), version[0], version[1], sys.platform, platform.machine()),
        file=sys.stderr,
    )
    return 1


def unpacked(content: zipfile.ZipFile) -> str:
    """The directory with the content. The content is unpacked if it is not in the cache."""
    os.environ.pop(TRIED, None)
    build = content.read("BUILD").decode().strip()
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    target = os.path.join(caches, "vmherd", "kubectl-vmherd-" + build)
    if os.path.isdir(target):
        return target
    try:
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        scratch = tempfile.mkdtemp(dir=os.path.dirname(target))
    except OSError:
        # No cache, for example in a container with a read-only file system: unpack for this run only.
        scratch = tempfile.mkdtemp(prefix="kubectl-vmherd-")
        atexit.register(shutil.rmtree, scratch, True)
        content.extractall(scratch)
        return scratch
    try:
        content.extractall(scratch)
        os.rename(scratch, target)
    except OSError:
        shutil.rmtree(scratch, True)
        # Another process may have been faster.
        if not os.path.isdir(target):
            raise
    return target


if __name__ == "__main__":
    sys.exit(main())
