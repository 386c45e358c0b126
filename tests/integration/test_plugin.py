"""`kubectl vmherd` on the real control plane: who asks, and which cluster."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from plugin.cli import main
from tests.controlplane.namespace import Namespace, PoolNamespace

pytestmark = pytest.mark.cluster


Run = Callable[..., str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(of: Namespace, line: str, *, code: int = 0) -> str:
        found = main([*line.split(), f"--kubeconfig={of.plane.kubeconfig}", "-n", of.namespace])
        out, err = capsys.readouterr()
        assert found == code, err
        return out if code == 0 else err

    return run


def test_the_flags_of_kubectl_choose_cluster_user_and_identity(
    pools: PoolNamespace, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools.make(1)
    status = "rollout status vmpool/pool --watch=false"
    forbidden = run(pools, f"{status} --as=jane --as-group=a --as-group=b", code=1)
    assert forbidden.startswith("Error from server (Forbidden): ")
    assert 'User "jane" cannot get resource' in forbidden
    admins = "--as=jane --as-group=x --as-group=system:masters"
    assert "vmpool" in run(pools, f"{status} {admins}")
    config = yaml.safe_load(Path(pools.plane.kubeconfig).read_text())
    [cluster], [user] = ([each["name"] for each in config[part]] for part in ("clusters", "users"))
    config |= {"contexts": [], "current-context": ""}
    bare = tmp_path / "kubeconfig"
    bare.write_text(yaml.safe_dump(config))
    line = f"{status} --kubeconfig={bare} --cluster={cluster} --user={user} -n {pools.namespace} --request-timeout=9s"
    assert main(line.split()) == 0
    assert main([*line.split(), "--token=wrong"]) == 1
    assert main([*line.split(), "--user=nobody"]) == 1
    assert main([*line.split(), "--server=https://127.0.0.1:1"]) == 1
