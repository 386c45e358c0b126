"""Runs checkov several times in one process. checkov's Python runs this file, so it imports nothing of the project.

Most of checkov's time is its import. This process imports checkov once. For each line of JSON on the standard input,
a fork of this process runs checkov with new arguments, in another working directory. The answer is one line with the
exit code.
"""

import json
import os
import sys

import checkov.main


def run(request: dict[str, str | list[str]]) -> int:
    """Return the exit code of checkov. Its output is in the files `stdout` and `stderr` of its working directory."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 2
    try:
        os.chdir(str(request["cwd"]))
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
        code = checkov.main.Checkov(argv=list(request["arguments"])).run() or 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(bool(ended.code))
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


for line in sys.stdin:
    print(run(json.loads(line)), flush=True)
