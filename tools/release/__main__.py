"""`python -m tools.release X.Y.Z` makes all files of a release in `dist/X.Y.Z`. The exit code is 0, or 1 with one line.

It pushes nothing, and makes a tag only with --tag.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.chart.helm import HelmMissing
from tools.release import archives, evidence, krew, packages, sbom, trial, zipapp
from tools.release.project import ROOT, Commit, Failed, Project, Refused, check, read_project, run, tag


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        commit = check(options.root, options.version, rehearsal=options.rehearsal, rebuild=options.rebuild)
        directory = options.out or options.root / "dist" / options.version
        with tempfile.TemporaryDirectory(prefix="vmherd-release-") as scratch:
            made = make(options.root, options.tools, commit, Path(scratch))
            if not options.no_trial:
                try_out(made, options, Path(scratch))
        replace(directory, made)
        if options.tag:
            tag(options.root, options.version)
            say(f"tagged v{options.version}, not pushed")
    except (Refused, Failed, HelmMissing, ValueError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    say(f"made {len(made)} files in {directory}; nothing was pushed")
    return 0


def make(root: Path, tools: Path, commit: Commit, scratch: Path) -> dict[str, bytes]:
    """Return the files of the release by name."""
    source = scratch / "source"
    tree = archives.read_tar(exported(root, commit, scratch))
    archives.write_tree(tree, source)
    project = read_project(source)
    say(f"{project.name} {project.version} from commit {commit.id[:12]}")
    files = packages.build(tools, source, _new(scratch / "packages"), commit.time)
    [wheel] = [content for name, content in files.items() if name.endswith(".whl")]
    library = packages.informers(project, source, scratch / "informers")
    files |= packages.build(tools, library, _new(scratch / "library"), commit.time)
    say("made the source distributions and the wheels")
    lock = source / ".ci" / "requirements-plugin.txt"
    plugin = zipapp.make(tools, wheel, lock, _new(scratch / "wheels"), commit.time)
    files |= {zipapp.NAME: plugin, **krew.files(project, plugin, (source / "LICENSE").read_bytes(), commit.time)}
    say(f"made the plugin as a zipapp, {len(plugin) / 1e6:.1f} MB, and for krew")
    files |= packages.chart(project, commit, source, _new(scratch / "chart"))
    say("made the chart package")
    files |= {
        f"{project.name}-{project.version}-image.tar.gz": packages.image_context(tree, commit.time),
        **sbom.of_release(tools, project, commit, source, scratch),
    }
    say("made the lists of packages, and checked them against the schema of CycloneDX")
    return with_evidence(project, commit, files, source)


def with_evidence(project: Project, commit: Commit, files: dict[str, bytes], source: Path) -> dict[str, bytes]:
    """Return the files with the provenance, the release notes and the checksums."""
    pins = {f".ci/{path.name}": path.read_bytes() for path in (source / ".ci").glob("requirements-*.txt")}
    proof = evidence.provenance(project, commit, files, pins)
    files = files | {evidence.PROVENANCE: proof}
    files |= {"RELEASE_NOTES.md": evidence.release_notes(project, commit).encode()}
    return files | {evidence.SUMS: evidence.sums(files)}


def exported(root: Path, commit: Commit, scratch: Path) -> bytes:
    """Return the files of the commit as a tar file. Files that git ignores have no influence on a release."""
    archive = scratch / "source.tar"
    run("git", "-C", root, "archive", "--format=tar", "--output", archive, commit.id)
    return archive.read_bytes()


def try_out(files: dict[str, bytes], options: argparse.Namespace, scratch: Path) -> None:
    """Install and run the files, as a user does. Raises Failed."""
    there = _new(scratch / "trial")
    for name, content in files.items():
        (there / name).write_bytes(content)
    (there / zipapp.NAME).chmod(0o755)
    pythons = trial.zipapp(there / zipapp.NAME, options.version, scratch)
    say(f"ran the zipapp with Python {', '.join(pythons)}")
    [wheel] = there.glob(f"{read_project(options.root).name}-*.whl")
    lock = (options.root / ".ci" / "requirements-dev.txt").read_text()
    trial.wheel(wheel, lock, scratch)
    say("installed the wheel into a new environment and ran vmherd demo --once")


def replace(directory: Path, files: dict[str, bytes]) -> None:
    """Write the files into an empty directory, in the place of an earlier run."""
    new = directory.with_name(f".{directory.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    _new(new)
    for name, content in files.items():
        (new / name).write_bytes(content)
    (new / zipapp.NAME).chmod(0o755)
    shutil.rmtree(directory, ignore_errors=True)
    new.rename(directory)


def say(line: str) -> None:
    print(f"release: {line}", flush=True)


def _new(directory: Path) -> Path:
    directory.mkdir(parents=True)
    return directory


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="release", description="Make all files of a release. Nothing is pushed.")
    parser.add_argument("version", help="the version in pyproject.toml, such as 0.1.0")
    parser.add_argument("--tools", type=Path, required=True, help="the Python with build and cyclonedx-bom")
    parser.add_argument("--out", type=Path, help="the directory for the files; default: dist/VERSION")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    parser.add_argument("--rehearsal", action="store_true", help="take the notes from Unreleased; the tag may exist")
    parser.add_argument("--rebuild", action="store_true", help="make the files of an existing tag again")
    parser.add_argument("--tag", action="store_true", help="make the tag vVERSION after all checks")
    parser.add_argument("--no-trial", action="store_true", help="do not install and run the files")
    return parser


if __name__ == "__main__":
    sys.exit(main())
