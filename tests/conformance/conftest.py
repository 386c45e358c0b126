import pytest

from tests.conformance.stored_objects import StoredObjects


@pytest.fixture
def server() -> StoredObjects:
    return StoredObjects()
