"""The objects of the benchmarks, from `objects.yaml`."""

from pathlib import Path
from typing import Any, Final

import yaml

OBJECTS: Final[dict[str, dict[str, Any]]] = yaml.safe_load(Path(__file__).with_name("objects.yaml").read_text())
BURST: Final = "burst"
