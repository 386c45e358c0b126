"""The recipe of the image: the Dockerfile and exactly the files that it copies, as one archive.

`docker build --tag vmherd - < vmherd-0.1.0-image.tar.gz` builds the image.
"""

from __future__ import annotations

from collections.abc import Mapping

from tools.release.archives import File, tar_gz

ALWAYS = ("Dockerfile", ".dockerignore")


def context(files: Mapping[str, File], epoch: int) -> bytes:
    """Return the archive with the files that `.dockerignore` lets through."""
    shown = [line[1:] for line in files[".dockerignore"].content.decode().splitlines() if line.startswith("!")]
    wanted = {name: file for name, file in files.items() if name in ALWAYS or _below(name, shown)}
    return tar_gz(dict(sorted(wanted.items())), epoch)


def _below(name: str, shown: list[str]) -> bool:
    return any(name == each or name.startswith(f"{each}/") for each in shown)
