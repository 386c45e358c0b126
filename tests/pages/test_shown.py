"""Commands and files of pages, without running them."""

from pathlib import Path

import pytest

from tests.pages.commands import FILE, NOT_RUN, Step, fences_of, plain_lines_with_prompt, steps_of
from tests.pages.output import matches
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
    assert plain_lines_with_prompt(page) == []


def test_a_file_that_a_page_shows_is_the_file_of_the_repository() -> None:
    fences = [(page, fence) for page in RUN for fence in fences_of(page) if fence.marked(FILE)]
    assert fences
    for page, fence in fences:
        assert "\n".join(fence.lines) + "\n" == (ROOT / fence.marked(FILE)).read_text(), page


def page_with(tmp_path: Path, text: str) -> Path:
    page = tmp_path / "page.md"
    page.write_text(text)
    return page


def test_commands_go_on_after_a_backslash_inside_quotes_and_in_documents(tmp_path: Path) -> None:
    page = page_with(
        tmp_path,
        "```console\n$ one \\\n    --more   # isn't it\nout\n\n"
        "$ two '\na: b'\n$ three <<'END'\n$ no command\nEND\nlast\n```\n",
    )
    assert steps_of(page) == [
        Step("one \\\n    --more   # isn't it", ("out", ""), 0, 2),
        Step("two '\na: b'", (), 0, 6),
        Step("three <<'END'\n$ no command\nEND", ("last",), 0, 8),
    ]


def test_a_mark_above_a_fence_applies_to_the_fence(tmp_path: Path) -> None:
    page = page_with(
        tmp_path,
        f"   <!-- {NOT_RUN}it needs a cluster -->\n   ```console\n   $ a\n   ```\n\n"
        "<!-- exit code: 1 -->\n```console\n$ b\n$ c\n```\n",
    )
    assert [(step.command, step.code, step.not_run) for step in steps_of(page)] == [
        ("a", 0, "it needs a cluster"),
        ("b", 0, ""),
        ("c", 1, ""),
    ]


def test_an_output_without_a_command_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="line 2: a fence of commands must start with a command"):
        steps_of(page_with(tmp_path, "```console\nout\n```\n"))


@pytest.mark.parametrize(
    ("expected", "seen"),
    [
        (("NAME  READY  AGE", "web-0  1/1  12s"), "NAME    READY   AGE\nweb-0   1/1     3m4s\n"),
        (("a ... c",), "a b b c\n"),
        (("...", "last"), "first\nsecond\nlast\n"),
        (("...", "last"), "last\n"),
        (("on node01 at 10.1.2.3",), "on node05 at 10.200.0.9\n"),
        (("uid 0000aaaa-0000-0000-0000-000000000000",), "uid 1b2c3d4e-1111-2222-3333-444455556666\n"),
    ],
)
def test_the_same_output_matches(expected: tuple[str, ...], seen: str) -> None:
    assert matches(expected, seen)


@pytest.mark.parametrize(
    ("expected", "seen"),
    [
        (("web-0  1/1",), "web-0 0/1\n"),
        (("a",), "a\nb\n"),
        (("a", "b"), "a\n"),
        (("a ... c",), "a\nc\n"),
        (("4 replicas",), "4s replicas\n"),
        (("a.c",), "abc\n"),
    ],
)
def test_another_output_does_not_match(expected: tuple[str, ...], seen: str) -> None:
    assert not matches(expected, seen)


def test_only_commands_that_change_nothing_are_repeated() -> None:
    assert is_looking("kubectl get vm web-1   # now")
    assert is_looking("kubectl vmherd rollout history vmpool/web")
    assert not is_looking("kubectl vmherd rollout undo vmpool/web")
    assert not is_looking("kubectl delete vm web-1")
