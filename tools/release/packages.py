"""The packages of a release. setuptools and Helm store times and modes of files, so archives are written again."""

import gzip
import io
import shutil
import tarfile
from pathlib import Path

from tools.chart.generated import NAMESPACE_FILE, objects, text_of
from tools.chart.helm import find_helm
from tools.release.project import Commit, Project, run


def tar_gz(directory: Path, epoch: int) -> bytes:
    """Return a directory as an archive: the same bytes for the same content. `epoch` is the time of each file."""

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


HELM = 3
"""The major version of Helm that packs the chart. The package is for Helm 3 and Helm 4."""


def build(tools: Path, source: Path, directory: Path, epoch: int) -> dict[str, bytes]:
    """Return both files by name. The wheel is made from the source distribution, so that distribution is complete."""
    run(
        *(tools / "uv", "build", "--quiet", "--no-config", "--no-build-isolation", "--python", tools / "python"),
        *("--out-dir", directory, source),
        SOURCE_DATE_EPOCH=str(epoch),
    )
    [sdist], [wheel] = directory.glob("*.tar.gz"), directory.glob("*.whl")
    return {sdist.name: repacked(sdist, directory / "sdist", epoch), wheel.name: wheel.read_bytes()}


def informers(project: Project, source: Path, directory: Path) -> Path:
    """Write the sources of `vmherd-informers`, for projects that need only `informers`, into a new directory."""
    shutil.copytree(source / "informers", directory / "informers", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(source / "LICENSE", directory)
    about = (source / "tools" / "release" / "informers.toml").read_text()
    (directory / "pyproject.toml").write_text(about.replace("@version@", project.version))
    return directory


def chart(project: Project, commit: Commit, source: Path, scratch: Path) -> dict[str, bytes]:
    """Return the chart package. Raises Failed if Helm does not accept the chart."""
    helm, folder = find_helm(HELM), source / "charts" / project.name
    run(helm, "lint", "--strict", "--set", "mode=standalone,image.registry=example.com", folder)
    run(helm, "package", folder, "--version", project.version, "--destination", scratch)
    [made] = scratch.glob("*.tgz")
    return {made.name: repacked(made, scratch / "content", commit.time)}


MODES = ("standalone", "alongside", "takeover")


def installs(project: Project, source: Path, image: str) -> dict[str, bytes]:
    """Return a manifest for each mode, for `kubectl apply`. Without an image, its header says where to set one."""
    made = {}
    for mode in MODES:
        name = f"install-{mode}.yaml"
        head = f"# {project.name} {project.version} in mode {mode}: kubectl apply --server-side -f {name}\n"
        if not image:
            head += "# No image is published. The API server refuses the Deployment until you set its empty image.\n"
        found = text_of(objects(find_helm(HELM), source / "charts" / project.name, mode, image=image))
        made[name] = f"{head}{(source / NAMESPACE_FILE).read_text()}---\n{found}".encode()
    return made
