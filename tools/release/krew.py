"""The plugin for krew: an archive with the zipapp and the licence, and the manifest."""

import hashlib
from typing import Any

import yaml

from tools.release import archives, zipapp
from tools.release.project import Project

PLATFORMS = (("linux", "amd64"), ("linux", "arm64"), ("darwin", "arm64"))
"""One archive is for all these platforms: see `tools.release.zipapp`."""

CAVEATS = """\
The plugin needs CPython 3.11 to 3.14 on the PATH.
At its first start it unpacks itself into ~/.cache/vmherd.
"""


def files(project: Project, plugin: bytes, licence: bytes, epoch: int) -> dict[str, bytes]:
    """Return the archive and the manifest. krew demands that the manifest has the name of the plugin."""
    name = f"{zipapp.NAME}-{project.version}.tar.gz"
    content = {zipapp.NAME: archives.File(plugin, executable=True), "LICENSE": archives.File(licence)}
    archive = archives.tar_gz(content, epoch)
    return {name: archive, f"{project.name}.yaml": manifest(project, name, archive).encode()}


def manifest(project: Project, name: str, archive: bytes) -> str:
    platform = {
        "uri": project.download(name),
        "sha256": hashlib.sha256(archive).hexdigest(),
        "bin": zipapp.NAME,
        "files": [{"from": zipapp.NAME, "to": "."}, {"from": "LICENSE", "to": "."}],
    }
    content: dict[str, Any] = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": project.name},
        "spec": {
            "version": f"v{project.version}",
            "homepage": project.home,
            "shortDescription": "See and steer replica sets and pools of VMs",
            "description": "Shows the state of KubeVirt's replica sets and pools, explains what\n"
            "their VMs wait for, and changes them.\n",
            "caveats": CAVEATS,
            "platforms": [
                {"selector": {"matchLabels": {"os": system, "arch": machine}}, **platform}
                for system, machine in PLATFORMS
            ],
        },
    }
    return yaml.dump(content, Dumper=_Readable, sort_keys=False, width=120)


class _Readable(yaml.SafeDumper):
    """Writes texts of several lines as blocks, and equal values several times."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Readable.add_representer(str, _text)
