"""The command line of the programs that generate files: they write the outdated files, or print them with `--check`."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main(
    arguments: Sequence[str],
    make: Callable[[], Mapping[Path, str]],
    command: str,
    failures: tuple[type[Exception], ...] = (),
    *,
    root: Path = ROOT,
) -> int:
    """`make` returns the content of each file. `command` is what a developer types to write the files."""
    if [*arguments] not in ([], ["--check"]):
        print(f"{command}: expected --check or no argument, got {' '.join(arguments)}", file=sys.stderr)
        return 2
    try:
        made = make()
    except failures as error:
        print(f"{command}: {error}", file=sys.stderr)
        return 1
    stale = [path for path, text in made.items() if not path.is_file() or path.read_text() != text]
    for path in stale:
        name = path.relative_to(root)
        if arguments:
            print(f"{name} is out of date: run `{command}`", file=sys.stderr)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made[path])
        print(f"wrote {name}")
    return int(bool(arguments and stale))
