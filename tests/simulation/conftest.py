"""The log keeps only errors, for the world of a life. Tests of other folders get their own configuration back."""

from collections.abc import Iterator

import pytest
import structlog

from tests.simulation.world import configure_logs


@pytest.fixture(autouse=True)
def kept_log() -> Iterator[None]:
    before = structlog.get_config()
    configure_logs()
    yield
    structlog.configure(**before)
