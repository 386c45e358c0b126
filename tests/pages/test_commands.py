"""Runs the commands of the tutorial and of the how-to pages on a real sandbox, in order and as they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pages.commands import steps_of
from tests.pages.session import ROOT, Session, session

pytestmark = [pytest.mark.e2e, pytest.mark.cluster, pytest.mark.timeout(600)]

DOCS = ROOT / "docs"


def play(page: Path, shell: Session) -> None:
    for step in steps_of(page):
        if not step.not_run:
            shell.play(step)


@pytest.mark.usefixtures("control_plane_binaries")
def test_each_command_of_the_tutorial_does_what_the_page_shows(tmp_path: Path) -> None:
    with session(tmp_path) as shell:
        play(DOCS / "tutorial.md", shell)
