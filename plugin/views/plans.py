"""The lines of `plan`."""

from __future__ import annotations

from collections.abc import Iterable

from controller.runtime.dry_run import DryRunReport


def plan_lines(subject: str, report: DryRunReport, disks: Iterable[str] = ()) -> list[str]:
    """Return one line for each write and each Event of the plan, and one line for the writes that wait.

    `disks` has a line for each VM whose disks the update deletes or expands, now or later.
    """
    texts = [*report.actions, *(f"event {notice}" for notice in report.notices)]
    if report.held:
        texts.append(f"held: {report.held}")
    texts += disks
    return [f"{subject}: {text}" for text in texts or ["nothing"]]
