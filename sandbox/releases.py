"""Downloads of the control plane's programs, as their projects publish them, checked before they are used.

The versions are pinned here, the same as in `sandbox/kube/go.mod`; the checksum of a file is the one that the release
itself publishes beside it, fetched over HTTPS. Whoever cannot reach the internet learns so within seconds.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
import tarfile
import tempfile
import threading
import urllib.request
from collections.abc import Iterable
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from sandbox.progress import shown

KUBERNETES = "1.37.1"
ETCD = "3.7.3"

REACHABLE_WITHIN_S = 5.0
STALLED_AFTER_S = 20.0
_CHUNK = 1 << 20
_MACHINES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


class DownloadError(Exception):
    """A program cannot be had from its release. `str()` says why."""


class Releases(Struct, frozen=True):
    """Where the projects publish: the addresses of a release's files."""

    kubernetes: str
    etcd: str

    @property
    def hosts(self) -> str:
        return " and ".join(str(urlsplit(url).hostname) for url in (self.kubernetes, self.etcd))

    def fetch(self, program: str, target: Path) -> None:
        """Fetch one program into a file. Raises DownloadError; what is in the file then is of no use."""
        try:
            arch = architecture()
            if program == "etcd":
                self._fetch_etcd(arch, target)
            else:
                url = f"{self.kubernetes}/bin/linux/{arch}/{program}"
                _save(url, target, _first_word(_read(f"{url}.sha256")))
        except (OSError, HTTPException, tarfile.TarError, ValueError, LookupError) as error:
            raise DownloadError(_told(error)) from error

    def _fetch_etcd(self, arch: str, target: Path) -> None:
        """The one program that comes in an archive."""
        name = f"etcd-v{ETCD}-linux-{arch}"
        expected = _checksum_of(f"{name}.tar.gz", _read(f"{self.etcd}/SHA256SUMS").splitlines())
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            archive = Path(scratch) / "etcd.tar.gz"
            _save(f"{self.etcd}/{name}.tar.gz", archive, expected)
            with tarfile.open(archive) as files:
                program = files.extractfile(f"{name}/etcd")
                if program is None:
                    raise ValueError(f"{name}.tar.gz holds no file {name}/etcd")
                with target.open("wb") as out:
                    shutil.copyfileobj(program, out)


OFFICIAL = Releases(
    kubernetes=f"https://dl.k8s.io/release/v{KUBERNETES}",
    etcd=f"https://github.com/etcd-io/etcd/releases/download/v{ETCD}",
)


def architecture() -> str:
    """This machine's, as the releases call it. Raises ValueError where there is none for it."""
    if platform.system() != "Linux" or platform.machine() not in _MACHINES:
        raise ValueError(f"nothing is published for {platform.system()} on {platform.machine()}")
    return _MACHINES[platform.machine()]


def _read(url: str) -> str:
    """A small file, soon. The first thing that is asked of a host, so it also finds out whether that is there.

    In a thread of its own, because a resolver that does not answer keeps to no timeout.
    """
    results: list[bytes | Exception] = []

    def read() -> None:
        try:
            with urllib.request.urlopen(url, timeout=REACHABLE_WITHIN_S) as answer:
                results.append(answer.read())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=read, daemon=True, name="release")
    thread.start()
    thread.join(2 * REACHABLE_WITHIN_S)
    if not results:
        raise TimeoutError(f"{urlsplit(url).hostname} does not answer")
    if isinstance(results[0], Exception):
        raise results[0]
    return results[0].decode()


def _save(url: str, target: Path, expected: str) -> None:
    digest = hashlib.sha256()
    answer: HTTPResponse
    with urllib.request.urlopen(url, timeout=STALLED_AFTER_S) as answer, target.open("wb") as out:
        size = int(answer.headers.get("Content-Length") or 0)
        with shown(f"fetching {url}", total=size >> 20, unit="MB") as advance:
            while chunk := answer.read(_CHUNK):
                digest.update(chunk)
                out.write(chunk)
                advance(out.tell() >> 20)
    if digest.hexdigest() != expected:
        raise ValueError(f"{url} has the checksum {digest.hexdigest()}, its release says {expected}")


def _checksum_of(name: str, lines: Iterable[str]) -> str:
    for line in lines:
        checksum, _, file = line.partition(" ")
        if file.strip(" *") == name:
            return checksum
    raise LookupError(f"the release lists no checksum of {name}")


def _first_word(text: str) -> str:
    words = text.split()
    if not words:
        raise LookupError("the release lists no checksum")
    return words[0]


def _told(error: Exception) -> str:
    """An error in a few words: urllib wraps the reason in another one's representation."""
    reason = getattr(error, "reason", None)
    return str(getattr(reason, "strerror", None) or reason or error or type(error).__name__)
