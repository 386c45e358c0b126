"""The plugin for krew: an archive with the zipapp and the licence, and the manifest.

One archive is for all platforms of the manifest: see `tools.release.zipapp`.
"""

import hashlib
from pathlib import Path
from string import Template

from tools.release import archives, zipapp
from tools.release.project import Project

MANIFEST = Path(__file__).with_name("krew.yaml")


def files(project: Project, plugin: bytes, licence: bytes, epoch: int) -> dict[str, bytes]:
    """Return the archive and the manifest. krew demands that the manifest has the name of the plugin."""
    name = f"{zipapp.NAME}-{project.version}.tar.gz"
    content = {zipapp.NAME: archives.File(plugin, executable=True), "LICENSE": archives.File(licence)}
    archive = archives.tar_gz(content, epoch)
    manifest = Template(MANIFEST.read_text()).substitute(
        name=project.name,
        version=project.version,
        home=project.home,
        uri=project.download(name),
        sha256=hashlib.sha256(archive).hexdigest(),
    )
    return {name: archive, f"{project.name}.yaml": manifest.encode()}
