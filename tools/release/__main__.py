"""`python -m tools.release X.Y.Z` makes all files of a release in `dist/X.Y.Z`. It pushes nothing."""

import argparse
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.chart.helm import HelmMissing
from tools.release import packages, plugin
from tools.release.packages import extract
from tools.release.project import ROOT, Commit, Failed, Project, Refused, check, read_project, run

LOCKS = {"image": "requirements-run.txt", "plugin": "requirements-plugin.txt"}


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    os.umask(0o022)  # the wheel has the modes of the files
    try:
        commit = check(options.root, options.version, rehearsal=options.rehearsal)
        directory = options.out or options.root / "dist" / options.version
        with tempfile.TemporaryDirectory(prefix="vmherd-release-") as scratch:
            image = f"{options.image}:{options.version}" if options.image else ""
            made = make(options.root, options.tools.parent, commit, Path(scratch), image=image)
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        for name, content in made.items():
            (directory / name).write_bytes(content)
    except (Refused, Failed, HelmMissing) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print(f"release: made {len(made)} files in {directory}; nothing was pushed")
    return 0


def make(root: Path, tools: Path, commit: Commit, scratch: Path, *, image: str) -> dict[str, bytes]:
    """Return the files of the release by name. Files that git ignores have no influence on a release."""
    source = scratch / "source"
    run("git", "-C", root, "archive", "--format=tar", "--output", scratch / "source.tar", commit.id)
    extract(scratch / "source.tar", source)
    project = read_project(source)
    files = packages.build(tools, source, scratch / "packages", commit.time)
    wheel = scratch / "packages" / f"{project.name}-{project.version}-py3-none-any.whl"
    library = packages.informers(project, source, scratch / "informers")
    files |= packages.build(tools, library, scratch / "library", commit.time)
    places = {"source": source, "scratch": scratch / "plugin"}
    archives = {
        plugin.archive_name(project, each): plugin.archive(tools / "uv", each, wheel, epoch=commit.time, **places)
        for each in plugin.PLATFORMS
    }
    files |= {**archives, f"{project.name}.yaml": plugin.manifest(project, archives).encode()}
    files |= packages.chart(project, commit, source, scratch / "chart")
    files |= packages.installs(project, source, image)
    files |= {f"{project.name}-{project.version}-{of}.cdx.json": sbom(tools, source, LOCKS[of]) for of in LOCKS}
    files |= {"RELEASE_NOTES.md": release_notes(project, commit).encode()}
    return files | {"SHA256SUMS": sums(files)}


def sbom(tools: Path, source: Path, lock: str) -> bytes:
    """Return the list of the packages in a lock file, in the format of CycloneDX 1.6. The tool validates it."""
    lists = (tools / "python", "-m", "cyclonedx_py", "requirements", source / ".ci" / lock)
    about = ("--pyproject", source / "pyproject.toml", "--mc-type", "application", "--output-reproducible")
    return run(*lists, *about, "--output-format", "JSON", "--spec-version", "1.6").encode()


def release_notes(project: Project, commit: Commit) -> str:
    """Return the section of CHANGELOG.md, where the files are described, and how to check them."""
    files = f"[docs/releasing.md]({project.home}/blob/v{project.version}/docs/releasing.md#files) describes the files."
    verify = f"All come from the commit {commit.id}. Check them with `sha256sum --check SHA256SUMS`."
    return f"# {project.name} {project.version}\n\n{commit.notes}\n\n## Files\n\n{files} {verify}\n"


def sums(files: Mapping[str, bytes]) -> bytes:
    return "".join(f"{hashlib.sha256(each).hexdigest()}  {name}\n" for name, each in sorted(files.items())).encode()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="release", description="Make all files of a release. Nothing is pushed.")
    parser.add_argument("version", help="the version in pyproject.toml, such as 0.1.0")
    parser.add_argument("--tools", type=Path, required=True, help="the Python beside which uv is")
    parser.add_argument("--image", default="", help="the image in the manifests, such as ghcr.io/me/vmherd")
    parser.add_argument("--out", type=Path, help="the directory for the files; default: dist/VERSION")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    parser.add_argument("--rehearsal", action="store_true", help="take the notes from Unreleased; the tag may exist")
    return parser


if __name__ == "__main__":
    sys.exit(main())
