"""The zipapp: what it contains, and how it starts with each Python."""

import os
import stat
import struct
import subprocess
import sys
from importlib import machinery
from pathlib import Path

import pytest

from tools.release import zipapp
from tools.release.archives import File, zipped
from tools.release.project import ROOT

PLUGIN = "import os, sys\ndef main():\n    print({name!r}, *sys.argv[1:])\n    return 3\n"


def an_archive(directory: Path, *, suffix: str = machinery.EXTENSION_SUFFIXES[0], build: str = "b1") -> Path:
    """A zipapp with the real bootstrap and another plugin."""
    files = {
        "__main__.py": zipapp.BOOTSTRAP.read_bytes(),
        "BUILD": f"{build}\n".encode(),
        f"msgspec/_core{suffix}": b"",
        "plugin/__init__.py": b"",
        "plugin/cli.py": PLUGIN.format(name="plugin").encode(),
        "plugin/completion.py": PLUGIN.format(name="completion").encode(),
    }
    path = directory / "kubectl-vmherd"
    path.write_bytes(zipapp.SHEBANG + zipped({name: File(content) for name, content in files.items()}, 1))
    return path


def run(*command: str | Path, cache: Path, path: str = "/usr/bin:/bin") -> subprocess.CompletedProcess[str]:
    environment = {"PATH": path, "XDG_CACHE_HOME": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
    words = [str(word) for word in command]
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_the_plugin_runs_from_a_cache_and_its_exit_code_is_kept(tmp_path: Path) -> None:
    archive, cache = an_archive(tmp_path), tmp_path / "cache"
    for _ in range(2):
        done = run(sys.executable, archive, "list", "-A", cache=cache)
        assert (done.returncode, done.stdout, done.stderr) == (3, "plugin list -A\n", "")
    [unpacked] = (cache / "vmherd").iterdir()
    assert unpacked.name == "kubectl-vmherd-b1"
    assert stat.S_IMODE(unpacked.stat().st_mode) == 0o700


def test_another_build_has_another_directory_in_the_cache(tmp_path: Path) -> None:
    for build in ("b1", "b2"):
        run(sys.executable, an_archive(tmp_path, build=build), cache=tmp_path / "cache")
    assert {path.name[-2:] for path in (tmp_path / "cache" / "vmherd").iterdir()} == {"b1", "b2"}


def test_without_a_cache_the_plugin_is_unpacked_for_one_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run(sys.executable, an_archive(tmp_path), "why", cache=tmp_path / "file")
    assert (done.returncode, done.stdout, done.stderr) == (3, "plugin why\n", "")


def test_the_name_of_the_completion_starts_the_completion(tmp_path: Path) -> None:
    link = tmp_path / "kubectl_complete-vmherd"
    link.symlink_to(an_archive(tmp_path))
    assert run(sys.executable, link, "a", cache=tmp_path / "cache").stdout == "completion a\n"


def test_a_python_without_extension_module_says_what_is_needed(tmp_path: Path) -> None:
    archive = an_archive(tmp_path, suffix=".cpython-399-other.so")
    done = run(sys.executable, archive, "list", cache=tmp_path / "cache", path=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("error: kubectl-vmherd needs CPython 3.11 to 3.14 on Linux")
    assert not (tmp_path / "cache").exists()


def test_a_fitting_python_of_the_path_takes_over_and_a_broken_one_is_passed_over(tmp_path: Path) -> None:
    """The name python3.14 exists but does not start, as with a shim of a version manager."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("python3.14", "exit 127"), ("python3.13", 'test "$1" = -c || echo "taken by 3.13 $2"')):
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    archive = an_archive(tmp_path, suffix=".cpython-399-other.so")
    done = run(sys.executable, archive, "list", cache=tmp_path / "cache", path=f"{programs}{os.pathsep}/bin")
    assert (done.returncode, done.stdout) == (0, "taken by 3.13 list\n")


def test_only_msgspec_keeps_its_extension_module() -> None:
    files = {name: File(b"x") for name in ("p/a.py", "p/_c.cpython-311-x86_64-linux-gnu.so", "p/_c.pyx", "p/py.typed")}
    assert set(zipapp.kept(files, compiled=True)) == {"p/a.py", "p/_c.cpython-311-x86_64-linux-gnu.so", "p/py.typed"}
    assert set(zipapp.kept(files, compiled=False)) == {"p/a.py", "p/py.typed"}


def test_the_modules_of_both_processors_of_macos_are_in_one_file() -> None:
    modules = [
        struct.pack("<4I", 0xFEEDFACF, cpu, 3, 8) + bytes(size) for cpu, size in ((0x1000007, 20_000), (0x100000C, 9))
    ]
    found = zipapp.universal(*modules)
    assert struct.unpack_from(">II", found) == (0xCAFEBABE, 2)
    for part, module in enumerate(modules):
        processor, _, start, size, page = struct.unpack_from(">5I", found, 8 + 20 * part)
        assert found[start : start + size] == module
        assert (processor, start % 2**page, page) == (struct.unpack_from("<I", module, 4)[0], 0, 14)


def test_the_generated_client_is_left_out_and_the_metadata_stays() -> None:
    names = ["kubernetes_asyncio/client/api/core_v1_api.py", "kubernetes_asyncio/config/kube_config.py"]
    more = ["vmherd-1.dist-info/METADATA", "vmherd-1.dist-info/RECORD", "vmherd-1.dist-info/licenses/LICENSE"]
    found = zipapp.kept({name: File(b"") for name in names + more}, compiled=False)
    assert set(found) == {names[1], more[0], more[2]}


def test_the_lock_of_the_plugin_pins_the_extension_module_for_all_platforms() -> None:
    lock = (ROOT / ".ci" / "requirements-plugin.txt").read_text()
    found = zipapp.pin(lock, zipapp.COMPILED)
    assert found.startswith("msgspec==")
    assert found.count("--hash=sha256:") > len(zipapp.PYTHONS) * len(zipapp.PLATFORMS)
    assert found.endswith("\n")
    assert not found.rstrip().endswith("\\")
    with pytest.raises(ValueError, match="does not pin nothing"):
        zipapp.pin(lock, "nothing")
