"""This script starts a program that ends with the parent process.

    python launch.py PARENT_PID PROGRAM ARGUMENT ...

The script asks the kernel to kill the current process when the parent ends. Then the script replaces itself with the
program, in the same process. The parent itself cannot safely run Python code between fork and exec, because it has
threads. The script imports nothing of this project, so it needs only a few milliseconds.
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
