"""Archives with the same bytes for the same content: no times, users or modes of the machine that made them."""

import gzip
import io
import tarfile
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

EARLIEST_ZIP = 315_532_800
"""1980-01-01, the first day that a zip file can store."""


@dataclass(frozen=True)
class File:
    content: bytes
    executable: bool = False

    @property
    def mode(self) -> int:
        return 0o755 if self.executable else 0o644


def read_tar(data: bytes) -> dict[str, File]:
    """Return the regular files of a tar file, which may be compressed, in their order."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        members = [member for member in archive if member.isreg()]
        return {each.name: File(_content(archive, each), bool(each.mode & 0o100)) for each in members}


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    reader = archive.extractfile(member)
    assert reader is not None, "a regular file has content"
    return reader.read()


def tar_gz(files: Mapping[str, File], epoch: int) -> bytes:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, file in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(file.content), file.mode, epoch
            archive.addfile(member, io.BytesIO(file.content))
    return gzip.compress(plain.getvalue(), mtime=epoch)


def read_zip(data: bytes) -> dict[str, File]:
    """Return the files of a zip file, in their order."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [member for member in archive.infolist() if not member.is_dir()]
        return {each.filename: File(archive.read(each), bool(each.external_attr >> 16 & 0o100)) for each in members}


def zipped(files: Mapping[str, File], epoch: int) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, file in files.items():
            member = zipfile.ZipInfo(name, time.gmtime(max(epoch, EARLIEST_ZIP))[:6])
            member.external_attr = (0o100000 | file.mode) << 16
            member.create_system = 3  # Unix, on which the modes above have a meaning
            archive.writestr(member, file.content, zipfile.ZIP_DEFLATED, 9)
    return made.getvalue()


def write_tree(files: Mapping[str, File], directory: Path) -> None:
    """Write the files below a directory."""
    for name, file in files.items():
        path = directory / name
        if not path.resolve().is_relative_to(directory.resolve()):
            raise ValueError(f"{name} is outside of the archive")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
        path.chmod(file.mode)
