"""Archives with the same bytes for the same content: no times, users or modes of the machine that made them."""

import gzip
import io
import tarfile
from pathlib import Path


def tar_gz(directory: Path, epoch: int) -> bytes:
    """Return the content of a directory as an archive. All its times are `epoch`, in seconds since 1970."""

    def fixed(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
        member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
        return member

    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(directory.iterdir()):
            archive.add(path, path.name, filter=fixed)
    return gzip.compress(plain.getvalue(), mtime=epoch)


def repacked(archive: Path, scratch: Path, epoch: int) -> bytes:
    """Return an archive of another program with the same content and fixed times, users and modes."""
    extract(archive, scratch)
    return tar_gz(scratch, epoch)


def extract(archive: Path, directory: Path) -> None:
    with tarfile.open(archive) as opened:
        opened.extractall(directory, filter="data")
