"""The source distribution and the wheel, made with the pinned packages of the build.

setuptools stores times and modes of files, so the archives are written again. hatchling was tried: its archives need
that no more, but the build of the image needs six pinned packages in the place of one.
"""

from __future__ import annotations

from pathlib import Path

from tools.release import archives
from tools.release.running import run


def build(python: Path, source: Path, directory: Path, epoch: int) -> dict[str, bytes]:
    """Return the files by name. The wheel is made from the source distribution, so that distribution is complete."""
    run(python, "-m", "build", "--no-isolation", "--outdir", directory, source, SOURCE_DATE_EPOCH=str(epoch))
    [sdist], [wheel] = directory.glob("*.tar.gz"), directory.glob("*.whl")
    return {
        sdist.name: archives.tar_gz(archives.read_tar(sdist.read_bytes()), epoch),
        wheel.name: archives.zipped(archives.read_zip(wheel.read_bytes()), epoch),
    }
