"""Worker processes that end with their parent."""

import os
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait


def workers(number: int) -> ProcessPoolExecutor:
    """Return a pool of worker processes. They end when this process ends, also if it is killed."""
    return ProcessPoolExecutor(number, get_context("spawn"), initializer=_end_with_parent)


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="parent").start()
