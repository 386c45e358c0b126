"""The example of docs/informers.md: a small controller in a separate process on the real control plane."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sandbox.controlplane import ControlPlane
from tests.cluster import Kubectl
from tests.controlplane.waits import eventually

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = ROOT / "docs" / "examples"


def greeting(name: str, text: str) -> dict[str, Any]:
    kind = {"apiVersion": "example.vmherd.dev/v1", "kind": "Greeting"}
    return {**kind, "metadata": {"name": name}, "spec": {"text": text}}


def texts(kubectl: Kubectl) -> dict[str, str]:
    """The field `text` of each ConfigMap with such a field."""
    items = kubectl.json("get", "configmaps")["items"]
    return {item["metadata"]["name"]: item["data"]["text"] for item in items if "text" in item.get("data", {})}


@contextmanager
def greeter(plane: ControlPlane, output: Path, python: str = sys.executable, path: str = str(ROOT)) -> Iterator[None]:
    with output.open("ab") as file:
        command = [python, str(EXAMPLES / "greeter.py"), str(plane.kubeconfig)]
        process = subprocess.Popen(command, cwd=output.parent, env={"PYTHONPATH": path}, stdout=file, stderr=file)
        try:
            yield
            assert process.poll() is None, output.read_text()
        finally:
            process.terminate()
            process.wait(60)


def test_the_example_keeps_a_config_map_for_each_greeting(
    control_plane: ControlPlane, kubectl: Kubectl, tmp_path: Path
) -> None:
    foreign = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "taken"}}
    kubectl.apply({**foreign, "data": {"text": "another user's"}})
    with greeter(control_plane, tmp_path / "greeter.log"):
        # The example starts before its kind exists, and waits for it.
        kubectl("apply", "-f", str(EXAMPLES / "greetings-crd.yaml"))
        kubectl("wait", "--for=condition=Established", "crd/greetings.example.vmherd.dev", "--timeout=30s")
        kubectl.apply(greeting("first", "hello"), greeting("second", "good day"), greeting("taken", "ignored"))
        eventually(lambda: texts(kubectl) == {"first": "hello", "second": "good day", "taken": "another user's"})

        kubectl.apply(greeting("first", "hello again"))
        eventually(lambda: texts(kubectl)["first"] == "hello again")
        kubectl("patch", "configmap", "second", "--type=merge", "--patch", '{"data":{"text":"overwritten"}}')
        eventually(lambda: texts(kubectl)["second"] == "good day")
        kubectl("delete", "configmap", "first")
        eventually(lambda: texts(kubectl).get("first") == "hello again")
        [owner] = kubectl.json("get", "configmap", "first")["metadata"]["ownerReferences"]
        assert owner["uid"] == kubectl.json("get", "greeting", "first")["metadata"]["uid"]

        # The garbage collector discovers a new kind only after up to 30 seconds, so this test does not wait for it.
        # In a slow run, the garbage collector deletes the ConfigMap before the test does.
        kubectl("delete", "greeting", "first")
        kubectl.apply(greeting("third", "good night"))
        # Both changes come through the same watch, so now the example knows of the deletion.
        eventually(lambda: "third" in texts(kubectl))
        kubectl("delete", "configmap", "first", "--ignore-not-found")
        kubectl("patch", "configmap", "third", "--type=merge", "--patch", '{"data":{"text":"overwritten"}}')
        # The same holds for the watch of ConfigMaps: the deletion comes before this change.
        eventually(lambda: texts(kubectl)["third"] == "good night")
        assert texts(kubectl) == {"second": "good day", "taken": "another user's", "third": "good night"}
