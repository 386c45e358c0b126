"""Archives have the same bytes for the same content, on every machine and at every time."""

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from tools.release.archives import File, read_tar, read_zip, tar_gz, write_tree, zipped

FILES = {"p/run": File(b"#!/bin/sh\n", executable=True), "p/a.txt": File(b"a")}
EPOCH = 1_790_000_000


def a_tar(**about: int) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        for name, file in FILES.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(file.content), 0o775 if file.executable else 0o664
            for field, value in about.items():
                setattr(member, field, value)
            archive.addfile(member, io.BytesIO(file.content))
    return made.getvalue()


def test_times_and_users_have_no_influence_on_a_tar_file() -> None:
    made = [tar_gz(read_tar(a_tar(mtime=time, uid=user)), EPOCH) for time, user in ((1, 0), (99, 1000))]
    assert made[0] == made[1]
    with tarfile.open(fileobj=io.BytesIO(made[0])) as archive:
        assert [(each.name, each.mode, each.mtime, each.uid) for each in archive] == [
            ("p/run", 0o755, EPOCH, 0),
            ("p/a.txt", 0o644, EPOCH, 0),
        ]


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


def test_an_archive_is_written_to_a_directory(tmp_path: Path) -> None:
    write_tree(read_tar(tar_gz(FILES, EPOCH)), tmp_path)
    assert (tmp_path / "p" / "a.txt").read_bytes() == b"a"
    assert (tmp_path / "p" / "run").stat().st_mode & 0o777 == 0o755
