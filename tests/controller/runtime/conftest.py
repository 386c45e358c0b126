"""The fixture of the tests that send writes to the fake API server."""

import pytest

from tests.controller.runtime.executor_setup import ExecutorSetup


@pytest.fixture
def setup() -> ExecutorSetup:
    return ExecutorSetup()
