"""An exec plugin is a command in a kubeconfig. It prints a token or a certificate. A plugin that hangs is killed.

`kubernetes_asyncio` reads the plugin's settings. This module runs the plugin, because that package does not kill a
plugin that hangs.
"""

import asyncio
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from informers.http.loaders import import_loaders

_config, _ = import_loaders()
_set_active_context: Final = _config.kube_config.KubeConfigLoader.set_active_context

CLUSTER: Final = "vmherd.dev/cluster"
"""The key under which the settings of a plugin have the cluster of the context, for `provideClusterInfo`."""

COPIED: Final = (
    "server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url",
    "disable-compression",
)  # fmt: skip
CONFIG: Final = "client.authentication.k8s.io/exec"
"""The fields of a cluster that a plugin gets, and the extension of the cluster with settings of the plugin."""


def is_interactive() -> bool:
    """Return True if a plugin can ask a user. Then it may take any time, and the user sees its messages."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty()


class ExecPlugin(_config.exec_provider.ExecProvider):  # type: ignore[name-defined,misc]
    """One exec plugin. The attributes `args`, `env` and `api_version` come from the kubeconfig."""

    def __init__(self, settings: Any) -> None:
        super().__init__(settings)
        self._mode: str = settings.safe_get("interactiveMode") or "IfAvailable"
        self._cluster: Mapping[str, Any] | None = settings.safe_get(CLUSTER)

    async def run(self, previous_response: str | None = None) -> Any:
        """Run the plugin and return the status of the ExecCredential that it prints.

        Raise ConfigException if the plugin fails or prints something else. If this method is cancelled, the plugin is
        killed.
        """
        interactive = is_interactive() and self._mode != "Never"
        if self._mode == "Always" and not interactive:
            raise _config.ConfigException(f"exec: {self.args[0]} needs a terminal (interactiveMode: Always)")
        spec = {"interactive": interactive, **({"cluster": self._cluster} if self._cluster else {})}
        info = {"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec}
        environment = {**self.env, "KUBERNETES_EXEC_INFO": json.dumps(info)}
        process = await asyncio.create_subprocess_exec(
            *self.args,
            env=environment,
            stdin=None if interactive else DEVNULL,
            stdout=PIPE,
            stderr=None if interactive else PIPE,
        )
        try:
            output, complaint = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            why = complaint.decode(errors="replace").strip() if complaint is not None else "its message is above"
            raise _config.ConfigException(f"exec: {self.args[0]} ended with code {process.returncode}: {why}")
        return self._status_in(output)

    def _status_in(self, output: bytes) -> Any:
        try:
            credential = json.loads(output)
            version, status = credential["apiVersion"], credential["status"]
        except (ValueError, KeyError, TypeError) as error:
            raise _config.ConfigException(f"exec: {self.args[0]} did not print an ExecCredential: {error!r}") from error
        if version != self.api_version:
            raise _config.ConfigException(
                f"exec: {self.args[0]} printed the version {version}, the kubeconfig asks for {self.api_version}"
            )
        return status


def use_killable_plugins() -> None:
    """Make kubernetes_asyncio run the exec plugins of kubeconfigs with `ExecPlugin`."""
    _config.kube_config.ExecProvider = ExecPlugin
    _config.kube_config.KubeConfigLoader.set_active_context = _choose_context


def _choose_context(loader: Any, context_name: str | None = None) -> None:
    """Choose the context as kubernetes_asyncio does, and give the context's cluster to an exec plugin that wants it."""
    _set_active_context(loader, context_name)
    settings = loader._user.safe_get("exec") if loader._user else None
    if isinstance(settings, dict) and settings.get("provideClusterInfo") is True:
        cluster = loader._cluster
        settings[CLUSTER] = _cluster_info(cluster.value, Path(cluster.path or ".").parent)


def _cluster_info(cluster: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the field `spec.cluster` of an ExecCredential. `folder` has the kubeconfig."""
    info = {name: cluster[name] for name in COPIED if cluster.get(name)}
    if (file := cluster.get("certificate-authority")) and "certificate-authority-data" not in info:
        info["certificate-authority-data"] = b64encode((folder / file).read_bytes()).decode()
    for each in cluster.get("extensions") or ():
        if each.get("name") == CONFIG:
            info["config"] = each.get("extension")
    return info
