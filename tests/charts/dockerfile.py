"""Runs the steps of a Dockerfile without a Docker engine: the same commands, in a directory instead of an image.

The image's root is a directory, so each absolute path in a step gets that directory as a prefix. A new virtual
environment takes the place of the base image's Python. `COPY` leaves out the files that `.dockerignore` names.
"""

import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec import Struct

STEP_WITHIN_S = 240
_ROOTED = re.compile(r"(?<![\w./-])/(?=(app|build|src)\b)")
_NO_CACHE = "PIP_NO_CACHE_DIR"
"""A variable that the Dockerfile sets, because an image layer does not need pip's cache.

The tests remove this variable.
"""


class Step(Struct, frozen=True):
    instruction: str
    text: str

    @property
    def words(self) -> list[str]:
        """The arguments of the instruction.

        The exec form is a JSON list. Any other text is split as a shell splits it.
        """
        if self.text.startswith("["):
            words: list[str] = json.loads(self.text)
            return words
        return shlex.split(self.text)


def read_steps(source: str) -> list[Step]:
    """The steps in order. Continued lines are joined."""
    lines = [line for line in source.splitlines() if not line.lstrip().startswith("#")]
    whole = "\n".join(lines).replace("\\\n", " ")
    return [Step(*(line.strip().split(None, 1))) for line in whole.splitlines() if line.strip()]


def read_stages(steps: list[Step]) -> list[list[Step]]:
    stages: list[list[Step]] = []
    for step in steps:
        if step.instruction == "FROM":
            stages.append([])
        if stages:
            stages[-1].append(step)
    return stages


class Image:
    """The state of the build: the root directory, the environment, and the other settings."""

    def __init__(self, root: Path, context: Path) -> None:
        self.root = root
        self.context = context
        self.environment: dict[str, str] = {}
        self.entrypoint: list[str] = []
        self.arguments: list[str] = []
        self.user = ""
        self.labels: dict[str, str] = {}
        self._work = root
        self._arguments: dict[str, str] = {}

    def build(self, source: str) -> None:
        """Raises CalledProcessError if a step fails."""
        stages = read_stages(read_steps(source))
        for number, stage in enumerate(stages):
            if number:
                self._set_aside(stages[number - 1][0])
            self._begin()
            for step in stage:
                self._do(step)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command as a container does, with only the image's environment."""
        path = {"PATH": os.environ["PATH"], **self.environment}["PATH"]
        program = shutil.which(command[0], path=path) or command[0]
        return subprocess.run(
            [program, *command[1:]],
            env=self.environment,
            cwd=self._work,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def _begin(self) -> None:
        """Begin a new image. At first, the image has only Python."""
        self.root.mkdir()
        self._work = self.root
        base, python = self.root.with_name("base"), self.root / "python"
        if not base.exists():
            subprocess.run([sys.executable, "-m", "venv", str(base)], check=True, timeout=60)
        shutil.copytree(base, python, symlinks=True)
        self.environment = {"PATH": f"{python / 'bin'}:/usr/bin:/bin"}

    def _set_aside(self, named: Step) -> None:
        """Keep a stage under its name. Later stages can copy from the stage."""
        name = named.words[-1]
        self.root.rename(self.root.with_name(name))

    def _do(self, step: Step) -> None:
        match step.instruction:
            case "FROM" | "EXPOSE":
                pass
            case "ARG":
                name, _, default = step.words[0].partition("=")
                self._arguments[name] = default
            case "ENV":
                self.environment |= dict(self._pairs(step))
            case "LABEL":
                self.labels |= dict(self._pairs(step))
            case "WORKDIR":
                self._work = Path(self._rooted(step.text))
                self._work.mkdir(parents=True, exist_ok=True)
            case "COPY":
                self._copy(step.words)
            case "RUN":
                self._run(step.text)
            case "USER":
                self.user = step.text
            case "ENTRYPOINT":
                self.entrypoint = step.words
            case "CMD":
                self.arguments = step.words
            case _:
                raise ValueError(f"{step.instruction} is nothing that these tests can carry out")

    def _run(self, text: str) -> None:
        environment = {name: value for name, value in self.environment.items() if name != _NO_CACHE}
        # pip's settings of this machine are not part of the image.
        outside = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "HOME"))}
        command = ["/bin/sh", "-ec", self._rooted(text)]
        done = subprocess.run(
            command,
            env={**outside, **environment},
            cwd=self._work,
            capture_output=True,
            text=True,
            timeout=STEP_WITHIN_S,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"RUN {text}: exit {done.returncode}\n{done.stdout}{done.stderr}")

    def _copy(self, words: list[str]) -> None:
        *sources, target = [word for word in words if not word.startswith("--")]
        place = Path(self._rooted(target)) if target.startswith("/") else self._work / target
        stage = next((word.partition("=")[2] for word in words if word.startswith("--from=")), "")
        if stage:
            [source] = sources
            shutil.copytree(self.root.with_name(stage) / source.lstrip("/"), place, symlinks=True)
            return
        for source in sources:
            files = list(self._let_through(source))
            if not files:
                raise FileNotFoundError(f"COPY {source}: .dockerignore lets nothing of it through")
            for file in files:
                inside = file.relative_to(self.context / source) if (self.context / source).is_dir() else file.name
                into = place / inside
                into.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, into)

    def _let_through(self, source: str) -> Iterator[Path]:
        start = self.context / source
        every = [path for path in start.rglob("*") if path.is_file()] if start.is_dir() else [start]
        rules = [
            line for line in (self.context / ".dockerignore").read_text().splitlines() if line[:1] not in ("", "#")
        ]
        for path in every:
            if not is_ignored(str(path.relative_to(self.context)), rules):
                yield path

    def _pairs(self, step: Step) -> Iterator[tuple[str, str]]:
        for word in step.words:
            name, _, value = word.partition("=")
            yield name, self._rooted(self._filled_in(value))

    def _filled_in(self, text: str) -> str:
        known: Mapping[str, str] = {**self._arguments, **self.environment}
        return re.sub(r"\$\{?(\w+)\}?", lambda found: known.get(found[1], ""), text)

    def _rooted(self, text: str) -> str:
        return _ROOTED.sub(f"{self.root}/", text)


def is_ignored(path: str, rules: list[str]) -> bool:
    """True if the last matching rule ignores the path. A rule for a directory matches all files in it."""
    ignored = False
    for rule in rules:
        pattern = rule.removeprefix("!").removeprefix("**/")
        parts = path.split("/")
        starts = range(len(parts)) if rule.startswith("**/") else [0]
        fits = any(
            fnmatch.fnmatch("/".join(parts[start:end]), pattern)
            for start in starts
            for end in range(start + 1, len(parts) + 1)
        )
        if fits:
            ignored = not rule.startswith("!")
    return ignored
