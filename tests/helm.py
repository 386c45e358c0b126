"""Runs the real Helm."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster import skip_or_fail
from tests.programs import finished
from tools.chart.generated import CHART
from tools.chart.helm import HelmMissing, find_helm
from tools.release.project import ROOT, read_project

PROJECT = read_project(ROOT)
RUNBOOK = f"{PROJECT.home}/blob/v{PROJECT.version}/docs/runbook.md"
REGISTRY = "registry.example.com"
MODE = {"mode": "standalone"}
NEWEST = "1.37.1"
"""The version of Kubernetes for `helm template`."""


def helm_or_skip(major: int) -> Path:
    """Return the program, fetched if necessary. If it cannot be fetched, skip the test. In CI, fail the test."""
    try:
        return find_helm(major)
    except HelmMissing as error:
        skip_or_fail(str(error))


class Helm:
    """One version of Helm, with its own home directory. `kubeconfig` selects the cluster."""

    def __init__(self, major: int, home: Path, *, kubeconfig: Path | None = None, namespace: str = "vmherd") -> None:
        self.major = major
        self.namespace = namespace
        self._program = helm_or_skip(major)
        self._home = home
        self._kubeconfig = kubeconfig

    def __call__(
        self, *arguments: str, values: Mapping[str, Any] | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run Helm, with the values in a file. If `check` is true and the command fails, the test fails and shows
        Helm's output.
        """
        command = [str(self._program), *arguments, "--namespace", self.namespace]
        if arguments[0] in ("template", "install", "upgrade", "lint"):
            # The chart refuses to render without an image.
            self._home.mkdir(parents=True, exist_ok=True)
            (self._home / "image.json").write_text(json.dumps({"image": {"registry": REGISTRY}}))
            command += ["--values", str(self._home / "image.json")]
        if values is not None:
            command += ["--values", "-"]
        done = finished(command, input=json.dumps(values or {}), env=self._environment(), within_s=90)
        if check and done.returncode:
            pytest.fail(f"helm {' '.join(arguments)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def render(
        self, values: Mapping[str, Any] | None = None, *, kinds: tuple[str, ...] = (), kubernetes: str = NEWEST
    ) -> list[dict[str, Any]]:
        """The objects of the chart, rendered without a cluster. `kinds` are given to Helm as `--api-versions`.

        Without a cluster the chart needs a mode. The default is standalone.
        """
        done = self._template(values or {}, kinds, kubernetes, check=True)
        return [document for document in yaml.safe_load_all(done.stdout) if document]

    def refusal(self, values: Mapping[str, Any], *, kinds: tuple[str, ...] = (), kubernetes: str = NEWEST) -> str:
        """Return Helm's error message for values that the chart refuses. The default mode is standalone."""
        done = self._template(values, kinds, kubernetes, check=False)
        assert done.returncode, "it was rendered"
        return done.stderr

    def _template(
        self, values: Mapping[str, Any], kinds: tuple[str, ...], kubernetes: str, *, check: bool
    ) -> subprocess.CompletedProcess[str]:
        flags = ["--kube-version", kubernetes, *(part for kind in kinds for part in ("--api-versions", kind))]
        return self("template", "vmherd", str(CHART), *flags, values={**MODE, **values}, check=check)

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HELM_", "KUBE"))}
        homes = {f"HELM_{kind}_HOME": str(self._home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        # The path of a missing kubeconfig: otherwise Helm would use the kubeconfig of the developer.
        return {**kept, **homes, "KUBECONFIG": str(self._kubeconfig or self._home / "none")}


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [each for each in objects if each["kind"] == kind]


def only(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    [found] = of_kind(objects, kind)
    return found


def run_flags(arguments: Sequence[str]) -> list[str]:
    """The flags of `vmherd run` in the arguments of the controller's container."""
    command, *flags = arguments
    assert command == "run"
    return flags


def container(objects: list[dict[str, Any]]) -> dict[str, Any]:
    [found] = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    return dict(found)
