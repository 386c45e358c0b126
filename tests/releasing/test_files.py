"""The metadata in a release: krew, Artifact Hub, checksums, provenance, notes, and the recipe of the image."""

import hashlib
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.release import archives, evidence, krew, packages, sbom
from tools.release.project import ROOT, Commit, read_project

PROJECT = read_project(ROOT)
COMMIT = Commit("c" * 40, 1_790_000_000, "### Added\n\n- **A thing**: new. More.\n\n### Security\n\n- A hole\n")
FILES = {"a.whl": b"wheel", "b.tar.gz": b"source"}


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    files = krew.files(PROJECT, b"plugin", b"licence", COMMIT.time)
    content: dict[str, Any] = yaml.safe_load(files[f"{PROJECT.name}.yaml"])
    [archive] = [each for name, each in files.items() if name.endswith(".tar.gz")]
    assert {each["sha256"] for each in content["spec"]["platforms"]} == {hashlib.sha256(archive).hexdigest()}
    return content


def test_the_manifest_follows_the_rules_of_krew(manifest: dict[str, Any]) -> None:
    """The rules of krew's validator. The real validator accepted this manifest, and the real krew installed it."""
    spec = manifest["spec"]
    assert (manifest["apiVersion"], manifest["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert re.fullmatch(r"[\w-]+", manifest["metadata"]["name"])
    assert re.fullmatch(r"v\d+\.\d+\.\d+", spec["version"])
    assert spec["shortDescription"]
    assert len(spec["shortDescription"]) <= 50
    assert "\n" not in spec["shortDescription"]
    assert max(map(len, (spec["description"] + spec["caveats"]).splitlines())) <= 80
    for platform in spec["platforms"]:
        assert re.fullmatch(r"[a-f0-9]{64}", platform["sha256"])
        assert platform["uri"].startswith(f"{PROJECT.home}/")
        assert platform["bin"] in [each["from"] for each in platform["files"]]
        assert set(platform["selector"]["matchLabels"]) == {"os", "arch"}
    systems = [tuple(each["selector"]["matchLabels"].values()) for each in spec["platforms"]]
    assert len(systems) == len(set(systems)), "at most one entry is for one platform"


def test_the_archive_for_krew_has_the_program_and_the_licence() -> None:
    [archive] = [each for name, each in krew.files(PROJECT, b"p", b"l", 1).items() if name.endswith(".tar.gz")]
    found = archives.read_tar(archive)
    assert {name: file.executable for name, file in found.items()} == {"kubectl-vmherd": True, "LICENSE": False}


def test_the_chart_of_a_release_has_its_changes_and_kinds_for_artifact_hub() -> None:
    definitions = [yaml.safe_load(path.read_text()) for path in (ROOT / "manifests" / "crds").glob("*.yaml")]
    about = (ROOT / "charts" / "vmherd" / "Chart.yaml").read_text()
    content = yaml.safe_load(packages.described(about, PROJECT, COMMIT, definitions))
    marks = {name.removeprefix("artifacthub.io/"): text for name, text in content["annotations"].items()}
    assert yaml.safe_load(marks["changes"]) == [
        {"kind": "added", "description": "A thing: new."},
        {"kind": "security", "description": "A hole"},
    ]
    assert marks["containsSecurityUpdates"] == "true"
    kinds = yaml.safe_load(marks["crds"])
    assert {each["kind"] for each in kinds} >= {"VirtualMachinePool", "VirtualMachineInstanceReplicaSet"}
    assert all(each[field] for each in kinds for field in ("kind", "version", "name", "displayName", "description"))
    assert {**content, "annotations": None} == {**yaml.safe_load(about), "annotations": None}


def test_a_chart_with_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Chart\.yaml has not the version .*: run `make manifests`"):
        packages.described("version: 0.0.1\nappVersion: 0.0.1\n", PROJECT, COMMIT, [])


def test_sha256sum_accepts_the_checksums(tmp_path: Path) -> None:
    for name, content in {**FILES, evidence.SUMS: evidence.sums(FILES)}.items():
        (tmp_path / name).write_bytes(content)
    command = ["sha256sum", "--check", "--strict", evidence.SUMS]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "a.whl: OK\nb.tar.gz: OK\n")


def test_the_provenance_names_each_file_the_commit_and_the_pins() -> None:
    statement = json.loads(evidence.provenance(PROJECT, COMMIT, FILES, {"pins.txt": b"x"}))
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    assert [each["name"] for each in statement["subject"]] == sorted(FILES)
    source, pins = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert (source["digest"], pins["uri"]) == ({"gitCommit": COMMIT.id}, "pins.txt")
    assert statement["predicate"]["runDetails"]["builder"]["id"].startswith(PROJECT.home)


def test_the_notes_have_the_changes_and_lead_to_the_list_of_files() -> None:
    text = evidence.release_notes(PROJECT, COMMIT)
    assert text.startswith(f"# {PROJECT.name} {PROJECT.version}\n\n### Added\n")
    assert f"/v{PROJECT.version}/docs/releasing.md#files)" in text
    assert COMMIT.id in text


def test_the_recipe_of_the_image_has_each_file_that_the_dockerfile_copies() -> None:
    names = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    tree = {name: archives.File((ROOT / name).read_bytes()) for name in names if (ROOT / name).is_file()}
    found = set(archives.read_tar(packages.image_context(tree, 1)))
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    for source in " ".join(copied).split():
        assert any(name == source or name.startswith(f"{source}/") for name in found), source
    assert found & {"Dockerfile", "tests/release.py", "CHANGELOG.md", "tools/python.py"} == {"Dockerfile"}


@pytest.mark.parametrize(
    ("line", "purl"),
    [
        ("python:3.14.7-slim", "pkg:docker/python@3.14.7-slim"),
        (f"python:3.14.7-slim@sha256:{'0' * 64}", f"pkg:docker/python@sha256:{'0' * 64}?tag=3.14.7-slim"),
    ],
)
def test_the_base_image_is_in_the_list_of_packages(line: str, purl: str) -> None:
    found = sbom.base_image(f"# x\nARG PYTHON_IMAGE={line}\nFROM ${{PYTHON_IMAGE}}\n")
    assert (found["purl"], found["version"]) == (purl, "3.14.7-slim")
    assert sbom.base_image((ROOT / "Dockerfile").read_text())["name"] == "python"


def test_the_program_depends_on_each_package() -> None:
    packages = [{"bom-ref": "requirements-L2", "purl": "pkg:pypi/a@1", "description": "line 2"}]
    content = {"metadata": {"component": {"bom-ref": "root"}}, "components": packages, "dependencies": []}
    found = sbom.connected(content)
    assert found["components"] == [{"bom-ref": "pkg:pypi/a@1", "purl": "pkg:pypi/a@1"}]
    assert found["dependencies"] == [{"ref": "root", "dependsOn": ["pkg:pypi/a@1"]}, {"ref": "pkg:pypi/a@1"}]
