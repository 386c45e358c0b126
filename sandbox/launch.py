"""Becomes the program in its arguments, after it has asked the kernel to kill that program when its parent goes.

    python launch.py PARENT_PID PROGRAM ARGUMENT ...

It stands between a parent and its child because a parent that has threads may run no code of its own between fork and
exec. It imports nothing of this project, so that it costs a few milliseconds.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
NOT_FOUND = 127


def main() -> None:
    parent, *command = sys.argv[1:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        sys.exit("its parent went before it began")
    try:
        os.execv(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(NOT_FOUND)


if __name__ == "__main__":
    main()
