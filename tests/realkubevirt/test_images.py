"""One image of a folder gets more names, and each name its own settings."""

import hashlib
import json
from pathlib import Path
from typing import Any

from tools.realkubevirt.cluster import NAME_OF_IMAGE, add_names


def stored(layout: Path, document: dict[str, Any]) -> dict[str, Any]:
    content = json.dumps(document).encode()
    digest = hashlib.sha256(content).hexdigest()
    (layout / "blobs" / "sha256" / digest).write_bytes(content)
    return {"digest": f"sha256:{digest}", "size": len(content)}


def content(layout: Path, of: dict[str, Any]) -> dict[str, Any]:
    raw = (layout / "blobs" / of["digest"].replace(":", "/")).read_bytes()
    assert of["size"] == len(raw)
    assert of["digest"] == f"sha256:{hashlib.sha256(raw).hexdigest()}"
    return dict(json.loads(raw))


def test_each_name_has_the_layers_of_the_image_and_its_own_settings(tmp_path: Path) -> None:
    (tmp_path / "blobs" / "sha256").mkdir(parents=True)
    config = stored(tmp_path, {"config": {"User": "107", "Env": ["PATH=/bin"]}})
    manifest = stored(tmp_path, {"config": config, "layers": ["the layer"]})
    index = {"manifests": [manifest | {"annotations": {NAME_OF_IMAGE: "all"}}]}
    (tmp_path / "index.json").write_text(json.dumps(index))
    add_names(tmp_path, "all", {"importer": {"User": "1001", "Entrypoint": ["/importer"]}, "same": {}})
    seen = {}
    for each in json.loads((tmp_path / "index.json").read_text())["manifests"]:
        image = content(tmp_path, each)
        assert image["layers"] == ["the layer"]
        seen[each["annotations"][NAME_OF_IMAGE]] = content(tmp_path, image["config"])["config"]
    first = {"User": "107", "Env": ["PATH=/bin"]}
    assert seen == {"all": first, "same": first, "importer": {**first, "User": "1001", "Entrypoint": ["/importer"]}}
