"""Starts a program that ends with the parent process: `python launch.py PARENT_PID PROGRAM ARGUMENT ...`.

A parent with threads cannot safely run Python code between fork and exec. So this script asks the kernel to kill the
process with its parent, and then replaces itself. Without imports of this project, it needs a few milliseconds.
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
        sys.exit("the parent process ended before this process started")
    try:
        os.execv(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(NOT_FOUND)


if __name__ == "__main__":
    main()
