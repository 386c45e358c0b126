"""Archives have the same bytes for the same content, on every machine and at every time."""

import io
import zipfile
from pathlib import Path

import pytest

from tools.release.archives import File, read_zip, write_tree, zipped

FILES = {"p/run": File(b"#!/bin/sh\n", executable=True), "p/a.txt": File(b"a")}
EPOCH = 1_790_000_000


def test_times_and_modes_have_no_influence_on_a_zip_file() -> None:
    old = io.BytesIO()
    with zipfile.ZipFile(old, "w") as archive:
        for name, file in FILES.items():
            member = zipfile.ZipInfo(name, (1999, 1, 1, 0, 0, 0))
            member.external_attr = (0o775 if file.executable else 0o600) << 16
            archive.writestr(member, file.content)
    assert zipped(read_zip(old.getvalue()), EPOCH) == zipped(FILES, EPOCH)


def test_a_commit_before_1980_can_be_zipped() -> None:
    assert read_zip(zipped(FILES, 0)) == FILES


def test_a_file_outside_of_the_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="outside of the archive"):
        write_tree({"../escape": File(b"")}, tmp_path / "there")
