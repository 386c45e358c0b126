#!/usr/bin/env python3
"""The program `kubectl-vmherd` of the archive for krew. The directory `lib` beside it has the packages.

Every Python runs this file, also one that is too old for the plugin. So the file has the syntax of Python 3.4.
"""

import os
import platform
import shutil
import subprocess
import sys
from importlib import machinery

LIBRARY = os.path.join(os.path.dirname(os.path.realpath(__file__)), "lib")
NAMES = ("python3.14", "python3.13", "python3.12", "python3.11")
TRIED = "KUBECTL_VMHERD_TRIED"


def main() -> int:
    compiled = os.path.join(LIBRARY, "msgspec", "_core")
    if not any(os.path.exists(compiled + suffix) for suffix in machinery.EXTENSION_SUFFIXES):
        return other_python()
    os.environ.pop(TRIED, None)
    sys.path.insert(0, LIBRARY)
    if os.path.basename(sys.argv[0]) == "kubectl_complete-vmherd":
        from plugin import completion

        return completion.main()
    from plugin import __main__ as plugin

    return plugin.main()


def other_python() -> int:
    """Run another Python of the PATH. If none fits, say so and return 1."""
    tried = os.environ.get(TRIED, "").split()
    for name in NAMES:
        path = shutil.which(name)
        # A name on the PATH may belong to a Python that is not installed.
        if path and name not in tried and subprocess.call([path, "-c", ""], stderr=subprocess.DEVNULL) == 0:
            os.environ[TRIED] = " ".join(tried + [name])
            os.execv(path, [path] + sys.argv)
    message = "error: kubectl-vmherd needs CPython 3.11 to 3.14 on Linux (glibc) or on macOS, not {} {}.{} on {} {}"
    version = sys.version_info
    print(
        message.format(platform.python_implementation(), version[0], version[1], sys.platform, platform.machine()),
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
