"""Parses flags and variables as `vmherd run` does."""

import os
from collections.abc import Mapping, Sequence
from unittest import mock

from controller.commands.run import command
from controller.config.settings import Config, make_config


def parse(argv: Sequence[str], env: Mapping[str, str], *, pod_namespace: str = "") -> Config:
    """The configuration of `vmherd run` in an environment that has only these variables. If an argument or a variable
    is wrong, raises click.UsageError.
    """
    with mock.patch.dict(os.environ, env, clear=True):
        return make_config(command.make_context("vmherd run", list(argv)), pod_namespace=pod_namespace)
