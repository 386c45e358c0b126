"""Commands and files of pages, without running them."""

from pathlib import Path

import pytest

from tests.pages.commands import FILE, PROMPT, fences_of, steps_of
from tests.pages.session import ROOT, is_looking
from tests.pages.test_commands import PAGES

DOCS = ROOT / "docs"
GUIDES = [DOCS / "tutorial.md", DOCS / "upgrading.md", DOCS / "scaling.md", DOCS / "support.md", DOCS / "comparison.md"]
RUN = sorted([*GUIDES, *(DOCS / "how-to").glob("*.md")])
NOT_RUN_AT_MOST = 8


def test_the_commands_of_every_page_are_run() -> None:
    assert {page for page in RUN if steps_of(page)} == PAGES


def test_few_commands_are_not_run_and_each_has_a_reason() -> None:
    left_out = [step for page in RUN for step in steps_of(page) if step.not_run]
    assert all(len(step.not_run.split()) > 3 for step in left_out)
    assert len(left_out) <= NOT_RUN_AT_MOST
    assert sum(len(steps_of(page)) for page in RUN) > 8 * len(left_out)


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_every_command_of_a_page_is_in_a_fence_of_commands(page: Path) -> None:
    others = [fence for fence in fences_of(page) if fence.language != "console"]
    assert [line for fence in others for line in fence.lines if line.startswith(PROMPT)] == []


def test_a_file_that_a_page_shows_is_the_file_of_the_repository() -> None:
    fences = [(page, fence) for page in RUN for fence in fences_of(page) if fence.marked(FILE)]
    assert fences
    for page, fence in fences:
        assert "\n".join(fence.lines) + "\n" == (ROOT / fence.marked(FILE)).read_text(), page


def test_only_commands_that_change_nothing_are_repeated() -> None:
    assert is_looking("kubectl get vm web-1   # now")
    assert is_looking("kubectl vmherd rollout history vmpool/web")
    assert not is_looking("kubectl vmherd rollout undo vmpool/web")
    assert not is_looking("kubectl delete vm web-1")
