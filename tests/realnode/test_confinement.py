"""What the kernel and the API server allow the controller's Pods."""

from typing import Any

import pytest

from tests.realnode.image import IMAGE
from tests.realnode.release import Release

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

FOREIGN = 1000700000
LOOK = """
import errno, json, os, pathlib
status = dict(line.split(":", 1) for line in pathlib.Path("/proc/1/status").read_text().splitlines())
def refusal(path):
    try:
        pathlib.Path(path, "file").touch()
    except OSError as error:
        return errno.errorcode[error.errno]
names = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Uid", "Gid")
seen = {name: status[name].split()[0] for name in names}
print(json.dumps({**seen, "writes": [refusal(path) for path in ("/", "/app", "/tmp")]}))
"""


@pytest.mark.parametrize(
    ("context", "user", "group"),
    [({}, 65532, 0), ({"runAsUser": FOREIGN, "fsGroup": FOREIGN}, FOREIGN, 0)],
    ids=["the image's user", "a foreign user"],
)
def test_a_pod_works_with_no_rights_on_a_read_only_root(
    bare: Release, context: dict[str, Any], user: int, group: int
) -> None:
    bare.install(podSecurityContext={"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}, **context})
    seen = bare.python(bare.leader(), LOOK)
    assert (seen.pop("Uid"), seen.pop("Gid")) == (str(user), str(group))
    assert seen.pop("writes") == ["EROFS"] * 3
    assert (seen.pop("NoNewPrivs"), seen.pop("Seccomp")) == ("1", "2")
    assert {int(number, 16) for number in seen.values()} == {0}
    sets = bare.sets()
    sets.make(2)
    sets.wait_ready(2)


def test_the_profile_restricted_is_enforced_where_the_pods_run(release: Release) -> None:
    root = ("run", "other", f"--image={IMAGE}", "--dry-run=server")
    assert 'violates PodSecurity "restricted' in release.site.kubectl(*root, check=False).stderr
    assert len(release.pods()) == 2
