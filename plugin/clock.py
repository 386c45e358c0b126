"""The clock of the commands. Tests replace it."""

from datetime import UTC, datetime


def now() -> datetime:
    return datetime.now(UTC)  # noqa: TID251  the commands are the shell: here the time comes in
