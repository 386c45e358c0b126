"""Shorter fixed delays for the forked programs: the tests on a control plane wait for seconds, not for half a minute.

Only the process that forks the programs imports this module (see tests/controlplane/forked.py). The unit tests run with
the real delays, in virtual time.
"""

from datetime import timedelta
from typing import Final

from controller.replicas import releases
from controller.runtime.execute import refusals
from controller.takeover import other_process, second_writer

REFUSED_AGAIN_S: Final = 3.0
"""The first wait before a refused write is tried again."""

releases.RELEASE_DELAY = timedelta(seconds=6)  # type: ignore[misc]
second_writer.INTERVAL_S = 10.0  # type: ignore[misc]
other_process.MARGIN = timedelta(seconds=2)  # type: ignore[misc]
refusals.FIRST_WAIT_S = REFUSED_AGAIN_S  # type: ignore[misc]
