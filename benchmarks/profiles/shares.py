"""Finds the functions that need most of the CPU time, in folded stacks."""

from collections import Counter

OWN = ("controller/", "informers/")
"""The beginnings of the names of vmherd's functions."""


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
