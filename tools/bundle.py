"""Writes the bundle for the Operator Lifecycle Manager: `python -m tools.bundle IMAGE`, into dist/bundle.

The bundle is the chart in mode alongside, on OpenShift. The ClusterServiceVersion has Deployment, rules and kinds.
"""

import json
import re
import sys
from typing import Any, TypeAlias

import yaml

from tools.chart.generated import CHART, objects
from tools.chart.helm import MAJORS, HelmMissing, find_helm
from tools.release.project import ROOT, Refused, read_project

Json: TypeAlias = dict[str, Any]
VALUES = "platform=openshift,rbac.deleteDisks=true,annotationPolicies.enabled=false,settings.disruptionBudgets=false"
LINKED = ("Deployment", "ServiceAccount", "ClusterRoleBinding", "RoleBinding", "Role")
"""The kinds that the manager makes from the description."""

IMAGE = re.compile(r"[\w.-]+(:\d+)?/[\w./-]+@sha256:[0-9a-f]{64}")
TEMPLATE = ROOT / "tools" / "olm"


def files(image: str) -> dict[str, str]:
    """Return the files of the bundle by their path. Raises Refused if the image has no registry or no digest."""
    if not IMAGE.fullmatch(image):
        raise Refused(
            f"the image needs a registry and a digest, such as IMAGE=registry.example.com/vmherd@sha256:...: {image!r}"
        )
    found = objects(find_helm(MAJORS[-1]), CHART, "alongside", VALUES, image=image)
    rules = {each["metadata"]["name"]: each["rules"] for each in found if each["kind"] in ("ClusterRole", "Role")}
    permissions = [*rules.pop("vmherd"), *rules.pop("vmherd-disks")]
    made = {}
    for each in found:
        kind, meta = each["kind"], each["metadata"]
        if kind not in LINKED and (kind != "ClusterRole" or meta["name"] in rules):
            meta.pop("namespace", None)  # the manager chooses it
            made[f"manifests/{meta['name']}.{kind.lower()}.yaml"] = each
    [deployment] = [each["spec"] for each in found if each["kind"] == "Deployment"]
    kinds = [each["spec"] for each in found if each["kind"] == "CustomResourceDefinition"]
    csv = description(image, deployment, kinds, permissions, rules["vmherd-lease"])
    made["manifests/vmherd.clusterserviceversion.yaml"] = csv
    texts = {name: yaml.safe_dump(each, sort_keys=False, width=120) for name, each in made.items()}
    about = (TEMPLATE / "annotations.yaml").read_text().replace("@channel@", csv["spec"]["maturity"])
    return {**texts, "metadata/annotations.yaml": about}


def description(image: str, deployment: Json, kinds: list[Json], cluster: list[Json], namespaced: list[Json]) -> Json:
    project, about = read_project(ROOT), yaml.safe_load((CHART / "Chart.yaml").read_text())
    [container] = deployment["template"]["spec"]["containers"]
    # Without this flag, the lease is in the namespace of the Pod.
    container["args"] = [word for word in container["args"] if not word.startswith("--leader-election-namespace=")]
    content: Json = yaml.safe_load((TEMPLATE / "clusterserviceversion.yaml").read_text())
    content["metadata"]["name"] = f"vmherd.v{project.version}"
    examples = json.dumps([_example(each) for each in kinds])
    content["metadata"]["annotations"] |= {
        "containerImage": image,
        "repository": project.home,
        "alm-examples": examples,
    }
    account = {"serviceAccountName": deployment["template"]["spec"]["serviceAccountName"]}
    content["spec"] |= {
        "version": project.version,
        "relatedImages": [{"name": "vmherd", "image": image}],
        "description": about["description"],
        "keywords": about["keywords"],
        "minKubeVersion": about["kubeVersion"].removeprefix(">=").removesuffix("-0"),
        "maintainers": [{"name": project.maintainer, "email": project.email}] if project.email else [],
        "links": [{"name": "Documentation", "url": project.home}],
        "provider": {"name": project.maintainer, "url": project.home},
        "icon": [{"base64data": about["icon"].partition(",")[2], "mediatype": "image/svg+xml"}],
        "customresourcedefinitions": {"owned": [_owned(each) for each in kinds]},
    }
    content["spec"]["install"]["spec"] = {
        "deployments": [{"name": "vmherd", "spec": deployment}],
        "clusterPermissions": [{**account, "rules": cluster}],
        "permissions": [{**account, "rules": namespaced}],
    }
    return content


def _example(spec: Json) -> Json:
    kind, texts = spec["names"]["kind"], (path.read_text() for path in (ROOT / "manifests" / "examples").glob("*.yaml"))
    found = next(each for text in texts for each in yaml.safe_load_all(text) if each["kind"] == kind)
    return {**found, "apiVersion": f"{spec['group']}/{spec['versions'][0]['name']}"}


def _owned(spec: Json) -> Json:
    names = spec["names"]
    [version] = [each for each in spec["versions"] if each["storage"]]
    text = version["schema"]["openAPIV3Schema"]["description"].split("\n")[0]
    name = f"{names['plural']}.{spec['group']}"
    return {
        "name": name,
        "kind": names["kind"],
        "version": version["name"],
        "displayName": names["kind"],
        "description": text,
    }


def main(image: str) -> int:
    try:
        made = files(image)
    except (Refused, HelmMissing) as error:
        print(f"bundle: {error}", file=sys.stderr)
        return 1
    for path, text in made.items():
        (ROOT / "dist" / "bundle" / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / "dist" / "bundle" / path).write_text(text)
    print("the bundle is in dist/bundle")
    if not read_project(ROOT).email:
        print("bundle: OperatorHub needs a maintainer: add the email of one to `authors` in pyproject.toml")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
