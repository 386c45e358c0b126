"""Evaluates health checks with the interpreters of Argo CD and Flux: gopher-lua and cel-go.

The Go module `tools/gitops` pins both. The program is built once for each state of the module, and is kept in the
cache. `python -m tests.gitops` builds the program from the command line.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sandbox.gobuild import BuildError
from tests.cluster import skip_or_fail
from tests.gomodules import find_or_build

MODULE = Path(__file__).resolve().parent.parent / "tools" / "gitops"
EVALUATED_WITHIN_S = 30


def evaluate(tasks: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return the result of each task. A task has an `object`, and a script `lua` or an expression `cel`.

    Skip the test if the program cannot be built. In CI, fail the test.
    """
    lines = "".join(f"{json.dumps(task)}\n" for task in tasks)
    try:
        program = find_or_build(MODULE)
    except BuildError as error:
        skip_or_fail(str(error))
    done = subprocess.run(
        [str(program)], input=lines, capture_output=True, text=True, timeout=EVALUATED_WITHIN_S, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


if __name__ == "__main__":
    try:
        print(find_or_build(MODULE))
    except BuildError as error:
        sys.exit(str(error))
