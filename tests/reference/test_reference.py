"""The pages of docs/reference/ equal their sources, and each name in the code is described."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from controller.kubevirt import annotations as names
from tools.reference import __main__ as pages
from tools.reference import events, metadata


@pytest.fixture(scope="module")
def made() -> Mapping[Path, str]:
    return pages.pages()


OUTSIDE = [pages.FOLDER.parent / "live-changes.md", *pages.WITH_FIGURES]


@pytest.mark.parametrize("path", [*sorted(pages.FOLDER.iterdir()), *OUTSIDE], ids=lambda path: path.name)
def test_a_page_equals_its_source(path: Path, made: Mapping[Path, str]) -> None:
    assert path.read_text() == made[path], "run `make reference`"


def test_the_folder_has_each_page_and_no_other(made: Mapping[Path, str]) -> None:
    assert {*pages.FOLDER.iterdir(), *OUTSIDE} == made.keys()


def test_an_annotation_without_a_text_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "NEW", "vmherd.dev/new", raising=False)
    with pytest.raises(metadata.Undescribed, match=r"\['vmherd.dev/new'\]"):
        metadata.page()


def test_the_reasons_of_events_are_found_in_the_code(tmp_path: Path) -> None:
    (tmp_path / "pool").mkdir()
    (tmp_path / "replicaset").mkdir()
    (tmp_path / "pool" / "status.py").write_text(
        'HELD = "ScaleInHeld"\n'
        'ACTIONS = {"create": "SuccessfulCreate"}\n'
        "def notices(failed):\n"
        '    return Notice(reason=HELD), Notice(reason="A" if failed else "B", warning=False)\n'
    )
    (tmp_path / "replicaset" / "status.py").write_text('x = Notice(reason="A", warning=False)\n')
    found = events.reasons(tmp_path)
    assert {(reason.name, reason.owner, reason.warning) for reason in found.values()} == {
        ("ScaleInHeld", "pools", True),
        ("SuccessfulCreate", "pools", False),
        ("FailedCreate", "pools", True),
        ("A", "both", False),
        ("B", "pools", False),
    }
    with pytest.raises(events.Undescribed, match=r"'A', .*'B', "):
        events.page(tmp_path)


def test_each_event_has_a_meaning_and_a_remedy() -> None:
    texts = events.read_texts(events.SOURCE.read_text())
    assert len(texts) == events.SOURCE.read_text().count("\n## ") > 25
    assert all(text.meaning and text.remedy for text in texts)
    assert len({(text.reason, text.when) for text in texts}) == len(texts)
