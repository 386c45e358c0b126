"""Builds KubeVirt's image from a checkout of its source, and container disks with a guest that boots in a second."""

import json
import subprocess
from pathlib import Path
from typing import Any, Final

from tests.packages import program_or_skip
from tests.realnode.image import Image, buildah

KUBEVIRT: Final = "localhost/virt-operator:1"
"""The image of all components but virt-handler. virt-operator refuses another name."""

HANDLER: Final = "localhost/virt-handler:1"
"""The same files. virt-handler runs as root."""

GUESTS: Final = ("guest", "guest-that-ends")
QEMU_USER: Final = "107"
SCRIPT: Final = Path(__file__).with_name("image.sh")


def build(source: Path, work: Path, version: str) -> None:
    """Build the images into buildah's storage. The first time takes half an hour on two cores."""
    program_or_skip("debootstrap", "debootstrap")
    work.mkdir(parents=True, exist_ok=True)
    (work / "version").write_text(version)
    # In a mount namespace of its own, a killed build leaves no mount behind.
    subprocess.run(["unshare", "--mount", str(SCRIPT), str(source.resolve()), str(work.resolve())], check=True)
    _commit(KUBEVIRT, work / "tree", user=QEMU_USER)
    _commit(HANDLER, KUBEVIRT, user="0")
    for name in GUESTS:
        for tag in (1, 2):  # two names of one disk, for updates
            _commit(f"localhost/{name}:{tag}", work / "guest" / name, user=QEMU_USER)


def images() -> list[Image]:
    names = (KUBEVIRT, HANDLER, *(f"localhost/{name}:{tag}" for name in GUESTS for tag in (1, 2)))
    return [Image(name, {}) for name in names]


def installation(work: Path, version: str) -> list[dict[str, Any]]:
    done = subprocess.run([str(work / "install"), version, HANDLER, KUBEVIRT], capture_output=True, check=True)
    return list(json.loads(done.stdout)["items"])


def _commit(name: str, content: Path | str, *, user: str) -> None:
    container = buildah("from", "scratch" if isinstance(content, Path) else content).strip()
    if isinstance(content, Path):
        buildah("copy", "--quiet", container, f"{content}/", "/")
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    buildah("config", "--user", user, "--env", f"PATH={path}", container)
    buildah("commit", "--quiet", "--rm", container, name)
