"""This module builds the command lines of the control plane's components from `flags.yaml`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Final

import yaml
from msgspec import Struct, structs

_FLAGS: Final[Mapping[str, Sequence[str]]] = yaml.safe_load(Path(__file__).with_name("flags.yaml").read_text())


class Ports(Struct, frozen=True):
    etcd: int
    etcd_peer: int
    api: int
    manager: int


def flags_of(component: str, directory: Path, ports: Ports, admission_plugins: Sequence[str]) -> list[str]:
    """Return the flags of a component. `directory` is the directory of the control plane."""
    texts = {"directory": directory, "admission_plugins": ",".join(admission_plugins), **structs.asdict(ports)}
    return [Template(flag).substitute(texts) for flag in _FLAGS[component]]
