"""An exec plugin is a command in a kubeconfig. It prints a token or a certificate. A plugin that hangs is killed.

`kubernetes_asyncio` reads the plugin's settings. This module runs the plugin, because that package does not kill a
plugin that hangs.
"""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from typing import Any

from informers.http.loaders import import_loaders

_config, _ = import_loaders()


def is_interactive() -> bool:
    """Return True if a plugin can ask a user. Then it may take any time, and the user sees its messages."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty()


class ExecPlugin(_config.exec_provider.ExecProvider):  # type: ignore[name-defined,misc]
    """One exec plugin. The attributes `args`, `env` and `api_version` come from the kubeconfig."""

    async def run(self, previous_response: str | None = None) -> Any:
        """Run the plugin and return the status of the ExecCredential that it prints.

        Raise ConfigException if the plugin fails or prints something else. If this method is cancelled, the plugin is
        killed.
        """
        interactive = is_interactive()
        info = {"apiVersion": self.api_version, "kind": "ExecCredential", "spec": {"interactive": interactive}}
        environment = {**self.env, "KUBERNETES_EXEC_INFO": json.dumps(info)}
        stderr = None if interactive else PIPE
        process = await asyncio.create_subprocess_exec(*self.args, env=environment, stdout=PIPE, stderr=stderr)
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
