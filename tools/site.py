"""Builds the site from docs/: `python -m tools.site PYTHON [DIRECTORY]`, with a Python that has zensical.

In a copy of the pages, each link that leaves docs/ leads to the repository. Diagrams load Mermaid from the site.

    DIRECTORY/X.Y.Z/         the site of this version; the sites of other versions are not touched
    DIRECTORY/versions.json  the versions for the menu, the newest first
    DIRECTORY/index.html     leads to the newest version
"""

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

from tools.release.project import ROOT, VERSION, Project, read_project

WORK = ROOT / "build" / "site"
LINK = re.compile(r"(?<=\]\()(\.\./[^)\s]+)")
ENTRY = re.compile(r"^- \[(.+?)\]\(([^)]+)\)", re.MULTILINE)
DIAGRAM = "\n```mermaid\n"
MERMAID = "mermaid-12.3.0.tgz"
SHA512 = "4113TdXeLAsMruJ79OpFL5O8+LTFXhQqZ260rF3tgUmiNAtRm4Uume04I+65PRN6yZ69J4f8rVYWW8zRk65UYw=="
SCRIPT = "images/mermaid.min.js"
START = '<meta http-equiv="refresh" content="0; url={}/">\n'


def prepare(work: Path, project: Project) -> Path:
    """Write the copy of the pages and the settings into a new directory. Return the path of the settings."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(ROOT / "docs", work / "docs")
    shutil.copy(ROOT / "charts" / "icon.svg", work / "docs" / "images")
    for page in (work / "docs").rglob("*.md"):
        place = Path("docs") / page.relative_to(work / "docs").parent
        text = page.read_text()
        for link in set(LINK.findall(text)):
            text = text.replace(f"]({link})", f"]({_outside(link, place, project)})")
        if DIAGRAM in text:
            text += f'\n<script src="{os.path.relpath(work / "docs" / SCRIPT, page.parent)}"></script>\n'
        page.write_text(text)
    index = (work / "docs" / "README.md").read_text()
    address = f"site_url = {json.dumps(project.home)}\nrepo_url = {json.dumps(project.home)}\n"
    settings = (ROOT / "zensical.toml").read_text()
    settings = settings.replace("[project]\n", f"[project]\n{address}nav = {_navigation(index)}\n", 1)
    (work / "zensical.toml").write_text(settings)
    return work / "zensical.toml"


def _outside(target: str, place: Path, project: Project) -> str:
    name, mark, anchor = target.partition("#")
    path = Path(os.path.normpath(place / name))
    if path.parts[0] == "docs":
        return target
    kind = "tree" if (ROOT / path).is_dir() else "blob"
    return f"{project.home}/{kind}/v{project.version}/{path}{mark}{anchor}"


def add_mermaid(work: Path) -> None:
    """Write the script that draws diagrams into the site. Raises ValueError if npm gives another file."""
    package = MERMAID.removesuffix(".tgz").replace("-", "@")
    subprocess.run(["npm", "pack", "--silent", package], cwd=work, stdout=subprocess.DEVNULL, check=True)
    if base64.b64encode(hashlib.sha512((work / MERMAID).read_bytes()).digest()).decode() != SHA512:
        raise ValueError(f"{package} is not the package whose SHA-512 is in {Path(__file__).name}")
    with tarfile.open(work / MERMAID) as archive:
        script = archive.extractfile("package/dist/mermaid.min.js")
        assert script is not None
        (work / "site" / SCRIPT).write_bytes(script.read())


def _navigation(index: str) -> str:
    sections = [f"{{{json.dumps('Home')} = {json.dumps('README.md')}}}"]
    for section in index.split("\n## ")[1:]:
        pages = ", ".join(f"{{{json.dumps(title)} = {json.dumps(page)}}}" for title, page in ENTRY.findall(section))
        sections.append(f"{{{json.dumps(section.splitlines()[0])} = [{pages}]}}")
    return f"[{', '.join(sections)}]"


def versions(site: Path) -> Iterator[str]:
    found = [path.name for path in site.iterdir() if VERSION.fullmatch(path.name)]
    yield from sorted(found, key=lambda name: [int(part) for part in name.split(".")], reverse=True)


def main(python: str, site: str = str(ROOT / "site")) -> int:
    project = read_project(ROOT)
    settings, place = prepare(WORK, project), Path(site)
    command = [python, "-m", "zensical", "build", "--strict", "--config-file", str(settings)]
    if subprocess.run(command, cwd=WORK, check=False).returncode:
        return 1
    try:
        add_mermaid(WORK)
    except (OSError, subprocess.CalledProcessError, ValueError) as error:
        print(f"docs: no script for diagrams: {error}", file=sys.stderr)
        return 1
    place.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(place / project.version, ignore_errors=True)
    shutil.move(WORK / "site", place / project.version)
    newest, *older = versions(place)
    entries = [{"version": name, "title": name, "aliases": []} for name in (newest, *older)]
    (place / "versions.json").write_text(json.dumps(entries) + "\n")
    (place / "index.html").write_text(START.format(newest))
    print(f"the site is in {place / project.version}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
