"""The bundle for the Operator Lifecycle Manager, and the validators of operator-sdk."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.preflight.permissions import permissions_needed
from tests import gomodules
from tests.command_line import parse
from tests.helm import run_flags
from tests.programs import finished
from tools import bundle
from tools.release.project import ROOT, read_project

pytestmark = pytest.mark.e2e
CSV = "manifests/vmherd.clusterserviceversion.yaml"
IMAGE = f"registry.example.com/vmherd@sha256:{'0' * 64}"


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    return bundle.files(IMAGE)


def validated(directory: Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(text)
    command = [str(gomodules.check_or_skip("operator-verify")), "manifests", "--object_validate", str(directory)]
    done = finished(command)
    return done.stdout + done.stderr


@pytest.mark.timeout(900)
def test_the_validators_find_nothing_and_find_a_mistake(tmp_path: Path, files: dict[str, str]) -> None:
    assert validated(tmp_path, files) == ""
    broken = files[CSV].replace("supported: true", "supported: false")
    assert "none of InstallModeTypes are supported" in validated(tmp_path, {CSV: broken})


@pytest.mark.parametrize(
    "image", ["", "vmherd@sha256:0", "registry.example.com/vmherd:1", IMAGE.replace("/vmherd", "/")]
)
def test_an_image_without_registry_or_digest_is_refused_in_one_line(
    image: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bundle.main(image) == 1
    assert capsys.readouterr().err.splitlines() == [
        "bundle: the image needs a registry and a digest, "
        f"such as IMAGE=registry.example.com/vmherd@sha256:...: {image!r}"
    ]


def test_the_bundle_names_the_project_and_has_no_placeholder_for_its_owner(files: dict[str, str]) -> None:
    spec = yaml.safe_load(files[CSV])["spec"]
    assert spec["relatedImages"] == [{"name": "vmherd", "image": IMAGE}]
    annotations = yaml.safe_load(files["metadata/annotations.yaml"])["annotations"]
    channels = [value for key, value in annotations.items() if "channel" in key]
    assert channels == [spec["maturity"]] * 2
    assert (spec["links"][0]["url"], spec["provider"]["url"]) == (read_project(ROOT).home,) * 2
    assert all(each["email"] for each in spec["maintainers"])
    assert "example.com" not in files[CSV].replace(IMAGE, "")


def test_the_account_has_the_permissions_that_the_program_needs(files: dict[str, str]) -> None:
    install: dict[str, Any] = yaml.safe_load(files[CSV])["spec"]["install"]["spec"]
    [container] = install["deployments"][0]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == IMAGE
    rules = [rule for part in ("clusterPermissions", "permissions") for rule in install[part][0]["rules"]]
    granted = {each for rule in rules for each in product(rule["apiGroups"], rule["resources"], rule["verbs"])}
    needed = permissions_needed(parse(run_flags(container["args"]), {}))
    assert needed
    assert {(p.group, f"{p.resource}/{p.subresource}".rstrip("/"), p.verb) for p in needed} - granted == set()
