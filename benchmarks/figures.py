"""The newest figures, with date, commit and machine. `make bench` writes them, and tools.reference quotes them."""

from pathlib import Path

import msgspec

from benchmarks.case import QUIET, Result

FILE = Path(__file__).with_name("figures.json")


def read(file: Path = FILE) -> list[Result]:
    """Return the results, sorted by case, size and the version of Python."""
    return msgspec.json.decode(file.read_bytes(), type=list[Result])


def note(result: Result, file: Path = FILE) -> bool:
    """Replace the earlier result of the same case, size and minor version of Python, and return True.

    A result of another controller, of a busy machine or with short waits is not written.
    """
    if result.subject != "vmherd" or result.others > QUIET or "--quick" in result.command:
        return False
    kept = [each for each in read(file) if _identity(each) != _identity(result)]
    results = msgspec.json.encode(sorted([*kept, result], key=_identity))
    file.write_bytes(msgspec.json.format(results, indent=1) + b"\n")
    return True


def _identity(result: Result) -> tuple[str, int, list[int]]:
    return result.case, result.size, [int(part) for part in result.conditions[-1].python.split(".")[:2]]
