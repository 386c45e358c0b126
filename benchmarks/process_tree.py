"""Reads the CPU time and the memory of a process and all its children from the kernel."""

import os
from collections.abc import Iterator
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")


def cpu_s(pid: int) -> float:
    """Return the user and system CPU time of the tree in seconds. Children that have ended are included."""
    return sum(sum(map(int, fields[11:15])) for fields in _tree(pid)) / TICKS


def rss_mb(pid: int) -> float:
    """Return the resident memory of the tree in MB. Shared pages count once for each process."""
    page = os.sysconf("SC_PAGE_SIZE")
    return sum(int(fields[21]) for fields in _tree(pid)) * page / 1e6


def cpu_of_machine_s() -> float:
    """Return the CPU time that all processes of this machine have used, in seconds."""
    user, nice, system, *_ = map(int, (PROC / "stat").read_text().split(maxsplit=9)[1:9])
    return (user + nice + system) / TICKS


def _tree(root: int) -> Iterator[list[str]]:
    """Yield the fields of /proc/PID/stat after the name, for the process and all its descendants."""
    children: dict[int, list[int]] = {}
    found: dict[int, list[str]] = {}
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # the process has ended
        found[int(entry.name)] = fields
        children.setdefault(int(fields[1]), []).append(int(entry.name))
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        if pid in found:
            yield found[pid]
        waiting += children.get(pid, [])
