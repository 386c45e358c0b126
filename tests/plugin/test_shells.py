"""Completion in bash, zsh and fish with the real kubectl: each shell runs kubectl's own completion script.

If the machine does not have the shell, root installs its package. PowerShell is not tested.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox.kubectl import KubectlMissing, kubectl_path
from tests.cluster import skip_or_fail
from tests.packages import need, program_or_skip

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]  # the first test may install packages

ROOT = Path(__file__).resolve().parents[2]
BASH_COMPLETION = Path("/usr/share/bash-completion/bash_completion")

BASH = f"""
source {BASH_COMPLETION}
source <(kubectl completion bash)
COMP_LINE="$LINE" COMP_POINT=${{#LINE}} COMP_TYPE=9
read -ra COMP_WORDS <<< "${{LINE/=/ = }}"
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
__start_kubectl 2>/dev/null
printf '%s\\n' "${{COMPREPLY[@]}}"
"""

# Outside the line editor of zsh, the functions that show completions are missing.
ZSH = """
compdef() { : }
_describe() { local name=$2; print -rl -- "${(@P)name}" }
source <(kubectl completion zsh)
words=(${=LINE}) CURRENT=$#words
_kubectl
"""

FISH = 'kubectl completion fish | source; complete -C "$LINE"'

Complete = Callable[[str], list[str]]


@pytest.fixture(params=["bash", "zsh", "fish"])
def complete(request: pytest.FixtureRequest, tmp_path: Path) -> Complete:
    """What a shell offers for the last word of a line, without descriptions."""
    name: str = request.param
    shell = program_or_skip(name, name)
    if name == "bash":
        need("bash-completion", BASH_COMPLETION.exists)
    try:
        kubectl = kubectl_path()
    except KubectlMissing as error:
        skip_or_fail(str(error))
    (tmp_path / "kubectl").symlink_to(kubectl)
    for program, module in (("kubectl-vmherd", "plugin.__main__"), ("kubectl_complete-vmherd", "plugin.completion")):
        code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\nfrom {module} import main\nsys.exit(main())\n"
        (tmp_path / program).write_text(f"#!{sys.executable}\n{code}")
        (tmp_path / program).chmod(0o755)
    script, flags = {"bash": (BASH, ["--norc"]), "zsh": (ZSH, ["-f"]), "fish": (FISH, ["-N"])}[name]
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"

    def complete(line: str) -> list[str]:
        environment = {**os.environ, "PATH": path, "LINE": line, "HOME": str(tmp_path)}
        done = subprocess.run(
            [shell, *flags, "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        # A shell without a terminal shows a description after a tab, and bash after spaces in parentheses.
        separator = ":" if name == "zsh" else r"\t| +\("
        words = [re.split(separator, each, maxsplit=1)[0] for each in done.stdout.splitlines()]
        return [word.rpartition("=")[2] if "=" in line else word for word in words]

    return complete


def test_a_shell_offers_commands_flags_values_and_types(complete: Complete):
    assert complete("kubectl vmherd ro") == ["rollout"]
    assert sorted(complete("kubectl vmherd rollout re")) == ["restart", "resume"]
    assert complete("kubectl vmherd rollout status --w") == ["--watch"]
    assert sorted(complete("kubectl vmherd scale --dry-run=")) == ["client", "none", "server"]
    assert sorted(complete("kubectl vmherd tree vm")) == ["vm/", "vmirs/", "vmpool/"]
