"""The files in docs/integrations: keys for k9s."""

import re
from typing import Any

import pytest
import yaml

from controller.kinds import KINDS
from tests.pages.session import ROOT
from tests.plugin import herds
from tests.plugin.cluster import Cluster, Shell

KEYS = yaml.safe_load((ROOT / "docs/integrations/k9s.yaml").read_text())["plugins"]
SELECTED = {"RESOURCE_NAME": "virtualmachinepools", "RESOURCE_GROUP": "pool.kubevirt.io", "NAME": "web"}
PLACE = {"NAMESPACE": "default", "CONTEXT": "any"}

VARIABLE = re.compile(r"\$(!?[\w|-]+)")
"""What k9s replaces in an argument. A name may have a `|` for k9s, so a pipe needs a space before it."""

FIELDS = {"shortCut", "description", "scopes", "command", "args", "background", "confirm", "dangerous"}
SAID = {"vmherd-tree": "|- vm/web-0", "vmherd-why": "vmpool/web wants 2", "vmherd-resume": '"web" is not paused'}


@pytest.mark.parametrize("name", KEYS)
def test_each_key_of_k9s_runs_a_command_on_the_selected_object(cluster: Cluster, shell: Shell, name: str):
    key: dict[str, Any] = KEYS[name]
    assert key.keys() <= FIELDS
    assert set(key["scopes"]) == {kind.plural for kind in KINDS}
    words = VARIABLE.sub(lambda found: {**SELECTED, **PLACE}[found[1]], " ".join(key["args"]))
    line = words.replace("-c kubectl ", "").removeprefix("vmherd ").partition(" 2>&1 |")[0].replace('"', "")
    assert line.endswith(" --context any")
    herds.pool_at_rest(cluster)
    _, out, err = shell(line.replace(" --watch", ""))
    assert SAID[name] in out + err


def test_no_two_keys_of_k9s_are_the_same():
    assert len({key["shortCut"] for key in KEYS.values()}) == len(KEYS)
