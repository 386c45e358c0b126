"""The lines of `plan`."""

from __future__ import annotations

from controller.runtime.dry_run import DryRunReport


def plan_lines(subject: str, report: DryRunReport) -> list[str]:
    """Return one line for each write and each Event of the plan, and one line for the writes that wait."""
    texts = [*report.actions, *(f"event {notice}" for notice in report.notices)]
    if report.held:
        texts.append(f"held: {report.held}")
    return [f"{subject}: {text}" for text in texts or ["nothing"]]
