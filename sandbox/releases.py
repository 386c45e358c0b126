"""Downloads the programs from the official releases over HTTPS, and verifies their checksums."""

import hashlib
import platform
import shutil
import tarfile
import tempfile
import threading
import urllib.request
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit

from msgspec import Struct

from sandbox.provide import progress_display

KUBERNETES = "1.37.1"
ETCD = "3.7.3"

CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 20.0
_CHUNK = 1 << 20
_MACHINES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


class DownloadError(Exception):
    """Raised if a program cannot be downloaded. `str()` returns the reason."""


class Releases(Struct, frozen=True):
    kubernetes: str
    etcd: str

    @property
    def hosts(self) -> str:
        return " and ".join(str(urlsplit(url).hostname) for url in (self.kubernetes, self.etcd))

    def fetch(self, program: str, target: Path) -> None:
        """Download one program to `target`. After a DownloadError, the file may be incomplete or wrong."""
        try:
            arch = architecture()
            if program == "etcd":
                self._fetch_etcd(arch, target)
            else:
                url = f"{self.kubernetes}/bin/linux/{arch}/{program}"
                _save(url, target, _checksum_of(program, _read(f"{url}.sha256")))
        except (OSError, HTTPException, tarfile.TarError, ValueError, LookupError) as error:
            if isinstance(error, HTTPError):
                error.close()  # the error has the open answer
            raise DownloadError(_reason(error)) from error

    def _fetch_etcd(self, arch: str, target: Path) -> None:
        name = f"etcd-v{ETCD}-linux-{arch}"
        expected = _checksum_of(f"{name}.tar.gz", _read(f"{self.etcd}/SHA256SUMS"))
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            archive = Path(scratch) / "etcd.tar.gz"
            _save(f"{self.etcd}/{name}.tar.gz", archive, expected)
            with tarfile.open(archive) as files:
                program = files.extractfile(f"{name}/etcd")
                if program is None:
                    raise ValueError(f"{name}.tar.gz contains no file {name}/etcd")
                with target.open("wb") as out:
                    shutil.copyfileobj(program, out)


OFFICIAL = Releases(
    kubernetes=f"https://dl.k8s.io/release/v{KUBERNETES}",
    etcd=f"https://github.com/etcd-io/etcd/releases/download/v{ETCD}",
)


def architecture() -> str:
    """Return `amd64` or `arm64`, as the releases name this machine. Raises ValueError for any other."""
    if platform.system() != "Linux" or platform.machine() not in _MACHINES:
        raise ValueError(f"there is no release for {platform.system()} on {platform.machine()}")
    return _MACHINES[platform.machine()]


def _read(url: str) -> str:
    """Download a small text file. Raises TimeoutError in time, for which a thread is needed during the DNS lookup."""
    results: list[bytes | Exception] = []

    def read() -> None:
        try:
            with urllib.request.urlopen(url, timeout=CONNECT_TIMEOUT_S) as answer:
                results.append(answer.read())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=read, daemon=True, name="release")
    thread.start()
    thread.join(2 * CONNECT_TIMEOUT_S)
    if not results:
        raise TimeoutError(f"{urlsplit(url).hostname} does not answer")
    if isinstance(results[0], Exception):
        raise results[0]
    return results[0].decode()


def _save(url: str, target: Path, expected: str) -> None:
    digest = hashlib.sha256()
    answer: HTTPResponse
    with urllib.request.urlopen(url, timeout=READ_TIMEOUT_S) as answer, target.open("wb") as out:
        size = int(answer.headers.get("Content-Length") or 0)
        with progress_display(f"downloading {url}", total=size >> 20, unit="MB") as advance:
            while chunk := answer.read(_CHUNK):
                digest.update(chunk)
                out.write(chunk)
                advance(out.tell() >> 20)
    if digest.hexdigest() != expected:
        raise ValueError(f"{url} has the checksum {digest.hexdigest()}, but its release lists {expected}")


def _checksum_of(name: str, text: str) -> str:
    """Return the checksum of a file from a list of checksums and file names. A list of one file may lack the name."""
    for line in text.splitlines():
        checksum, _, file = line.strip().partition(" ")
        if checksum and file.strip(" *") in (name, ""):
            return checksum
    raise LookupError(f"the release lists no checksum for {name}")


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    return str(getattr(reason, "strerror", None) or reason or error or type(error).__name__)
