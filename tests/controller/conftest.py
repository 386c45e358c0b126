from collections.abc import Iterator

import pytest

from controller.runtime.members import rosters


@pytest.fixture(scope="module")
def small_rosters() -> Iterator[None]:
    """Sets and pools with two members have a roster, and slices have two members."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rosters, "SMALL", 2)
        patch.setattr(rosters, "SLICE", 2)
        yield
