import pytest

from informers.workqueue import WorkQueue
from tests.informers.queues import make_queue


@pytest.fixture
def queue() -> WorkQueue[str]:
    return make_queue()
