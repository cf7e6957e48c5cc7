"""All components live through every disturbance of ``make soak``, for some minutes."""

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.soak import age
from tests.soak.disturbances import DISTURBANCES

pytestmark = pytest.mark.slow

#: Of memory at a tenth of the way: code and caches are still being filled in so short a time.
ALLOWED = 1.2


def test_components_decide_after_every_disturbance(controlplane: ControlPlane) -> None:
    """After restarts, compactions, revoked tokens, suspended processes and clocks that are set."""
    course = age.run(controlplane, 0.0, least_rounds=DISTURBANCES)

    assert len(set(course.disturbances)) == DISTURBANCES
    assert max(course.growth().values()) < ALLOWED
