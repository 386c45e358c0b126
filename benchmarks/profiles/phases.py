"""Profiles phases of a round, such as a scale-out, and prints the functions that need most of the CPU time."""

import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.case import Setting
from benchmarks.controllers import Running, wait_until

OWN = ("controller/", "informers/")
"""The beginnings of the names of vmherd's functions."""

SHOWN = 16
WITHIN_S = 600.0
TARGET = "profile.folded"


def watched(setting: Setting, *more: str, at_start: bool = False) -> tuple[str, ...]:
    """Return the arguments of `benchmarks.watched` for the round: those in `more`, and those of the profile."""
    if setting.profiles is None:
        return more
    return (*more, "--profile", str(setting.directory / TARGET), *(("--at-start",) if at_start else ()))


@contextmanager
def profiled(setting: Setting, program: Running, phase: str, *, at_start: bool = False) -> Iterator[None]:
    """Profile the program while the block runs, if the round has profiles. Keep the folded stacks.

    `at_start` is True if the program was started with a running profile.
    """
    if setting.profiles is None:
        yield
        return
    target = setting.directory / TARGET
    target.unlink(missing_ok=True)
    if not at_start:
        program.signal(signal.SIGUSR2)
    yield
    program.signal(signal.SIGUSR2)
    wait_until(target.exists, "the controller writes its profile", within_s=WITHIN_S)
    setting.profiles.mkdir(parents=True, exist_ok=True)
    folded = setting.profiles / f"profile-{phase}.folded"
    folded.write_bytes(target.read_bytes())
    print(f"{phase} {setting.size}: {folded}")
    _show(folded.read_text())


def _show(folded: str) -> None:
    own, inner = shares(folded, own=True), shares(folded, own=False)
    ours = {name: share for name, share in inner.items() if name.startswith(OWN)}
    for what, found in (("of their own CPU time", own), ("of the CPU time in them and in what they call", ours)):
        print(f"  functions by the share {what}:")
        for name, share in [*found.items()][:SHOWN]:
            print(f"    {share:6.1%}  {name}")


def shares(folded: str, *, own: bool) -> dict[str, float]:
    """Return the share of all samples in which each function is on the stack, or with `own` at its end."""
    found: Counter[str] = Counter()
    total = 0
    for line in folded.splitlines():
        stack, _, samples = line.rpartition(" ")
        names, count = stack.split(";"), int(samples)
        total += count
        found.update(dict.fromkeys(names[-1:] if own else names, count))
    return {name: count / total for name, count in found.most_common()}
