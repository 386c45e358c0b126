"""A life configures the log of its process. Tests of other folders get their own configuration back."""

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def kept_log() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)
