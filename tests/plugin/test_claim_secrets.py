"""`kubectl vmherd claim --secret` (P33)."""

import json
from pathlib import Path

import pytest

from controller.kubevirt.annotations import CLAIMED_BY
from controller.kubevirt.resources import VMS
from informers.meta import ObjectKey
from plugin.claim_secrets import SECRETS
from tests import pool_builders
from tests.plugin import states
from tests.plugin.cluster import Cluster, Shell

WORD = "swordfish"
AS_BASE64 = "c3dvcmRmaXNo"


def volumes(number: int | None = None) -> list[object]:
    """The volumes of the template, or of the VM with this number."""
    end = "" if number is None else f"-{number}"
    optional = {"secretName": f"late{end}", "optional": True}
    return [{"name": "user", "secret": {"secretName": f"user{end}"}}, {"name": "late", "secret": optional}]


def herd(cluster: Cluster, *, index: bool = True, optional: bool = True) -> None:
    """A pool of two VMs. Each has an optional Secret, `late-0` and `late-1`."""
    spec = pool_builders.vm_spec(volumes=volumes() if optional else volumes()[:1])
    states.pool_at_rest(cluster, 2, spec=spec, nameGeneration={"appendIndexToSecretRefs": True} if index else None)
    for number in range(2):
        change = {"spec": {"template": {"spec": {"volumes": volumes(number if index else None)}}}}
        cluster.server.change(VMS, ObjectKey("default", f"web-{number}"), change)


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(WORD)
    return path


def claimant(cluster: Cluster, name: str) -> str | None:
    found: str | None = (cluster.document(VMS, name)["metadata"].get("annotations") or {}).get(CLAIMED_BY)
    return found


def test_a_claim_gives_its_vm_the_secret_that_the_vm_names(cluster: Cluster, shell: Shell, token: Path) -> None:
    herd(cluster)
    line = f"claim vmpool/web --for a --secret {token} --secret key.pem={token}"
    assert shell.output(line) == (
        "virtualmachine.kubevirt.io/web-0 claimed by a, address -, node node-1, secret late-0\n"
    )
    made = cluster.document(SECRETS, "late-0")
    assert made["data"] == {"token": AS_BASE64, "key.pem": AS_BASE64}
    [owner] = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["blockOwnerDeletion"]) == ("VirtualMachine", "uid-web-0", True)
    assert json.loads(shell.output(f"{line} -o json"))["secret"] == "late-0", "the same claim again"
    assert claimant(cluster, "web-1") is None


def test_other_data_for_the_same_claim_are_refused_and_never_shown(
    cluster: Cluster, shell: Shell, token: Path, tmp_path: Path
) -> None:
    herd(cluster)
    shell.output(f"claim vmpool/web --for a --secret {token}")
    other = tmp_path / "other"
    other.write_text(WORD[::-1])
    said = shell.error(f"claim vmpool/web --for a --secret token={other}")
    assert said == (
        "error: vm/web-0 stays claimed, but has no new Secret: its secret/late-0 has other data; delete this, and "
        "repeat the command; to give the VM back: kubectl vmherd release vm/web-0 --keep"
    )
    assert cluster.document(SECRETS, "late-0")["data"] == {"token": AS_BASE64}


def test_without_the_right_to_read_secrets_only_the_first_claim_can_be_served(
    cluster: Cluster, shell: Shell, token: Path
) -> None:
    herd(cluster)
    cluster.forbidden = {"secrets"}
    shell.output(f"claim vmpool/web --for a --secret {token}")
    said = shell.error(f"claim vmpool/web --for a --secret {token}")
    assert "no new Secret: Error from server (Forbidden): secrets is forbidden: User" in said
    assert claimant(cluster, "web-0") == "a"


def test_a_secret_that_is_not_of_this_vm_is_left_alone(cluster: Cluster, shell: Shell, token: Path) -> None:
    herd(cluster)
    cluster.server.put(SECRETS, {"metadata": {"namespace": "default", "name": "late-0"}, "data": {"token": AS_BASE64}})
    said = shell.error(f"claim vmpool/web --for a --secret {token}")
    assert "other Secrets have the names late-0" in said


@pytest.mark.parametrize(("index", "optional"), [(False, True), (True, False)])
def test_a_pool_without_an_optional_secret_for_each_vm_gives_no_vm(
    cluster: Cluster, shell: Shell, token: Path, index: bool, optional: bool
) -> None:
    """All VMs would see a Secret whose name has no ordinal."""
    herd(cluster, index=index, optional=optional)
    said = shell.error(f"claim vmpool/web --for a --secret {token}")
    assert said.startswith("error: vmpool/web has no place for a Secret: it needs a secret volume with optional: true")
    assert cluster.writes == []


def test_a_user_who_may_not_create_the_secret_claims_no_vm(cluster: Cluster, shell: Shell, token: Path) -> None:
    herd(cluster)
    cluster.is_read_only = True
    said = shell.error(f"claim vmpool/web --for a --secret {token}")
    assert said == 'Error from server (Forbidden): User "jane" cannot create resource "pools"'
    [(method, path, parameters, _)] = cluster.writes
    assert (method, path.rpartition("/")[2], parameters["dryRun"]) == ("POST", "secrets", "All")


def test_a_file_that_cannot_be_read_claims_no_vm(cluster: Cluster, shell: Shell) -> None:
    herd(cluster)
    said = shell.error("claim vmpool/web --for a --secret /nowhere/token")
    assert said == "error: /nowhere/token cannot be read: No such file or directory"
    assert cluster.writes == []
