"""All components live through every disturbance of ``make soak``, for some minutes."""

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.soak import age
from tests.soak.usage import DISTURBANCES

pytestmark = pytest.mark.slow


def test_components_decide_after_every_disturbance(controlplane: ControlPlane) -> None:
    """After restarts, compactions, revoked tokens, suspended processes and clocks that are set."""
    course = age.run(controlplane, 0.0, least_rounds=DISTURBANCES)

    assert len(set(course.disturbances)) == DISTURBANCES
    assert max(course.growth().values()) < age.ALLOWED
