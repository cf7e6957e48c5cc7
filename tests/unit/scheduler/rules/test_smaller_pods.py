"""Specs with smaller requests, whatever makes up the requests of the pod."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.codec import decode
from koordinator.api.pod import PodSpec
from koordinator.domain.pod_requests import pod_requests
from koordinator.scheduler.rules.smaller_pods import asking_at_least, asking_at_most

CORES = st.integers(0, 4)
INIT = st.tuples(st.booleans(), CORES)


def spec(
    containers: Sequence[int],
    init: Sequence[tuple[bool, int]] = (),
    *,
    pod: int = 0,
    overhead: int = 0,
) -> PodSpec:
    """Return a spec; an init container is a sidecar or plain, with its cores."""

    def container(name: str, cores: int) -> dict[str, object]:
        return {"name": name, "resources": {"requests": {"cpu": str(cores)}}}

    return decode(
        {
            "containers": [container(f"c{i}", n) for i, n in enumerate(containers)],
            "initContainers": [
                container(f"i{i}", n) | ({"restartPolicy": "Always"} if runs else {})
                for i, (runs, n) in enumerate(init)
            ],
            **({"resources": {"requests": {"cpu": str(pod)}}} if pod else {}),
            **({"overhead": {"cpu": str(overhead)}} if overhead else {}),
        },
        PodSpec,
    )


@given(
    containers=st.lists(CORES, min_size=1, max_size=3),
    init=st.lists(INIT, max_size=3),
    pod=st.integers(0, 12),
    overhead=st.integers(0, 2),
    most=st.integers(1, 12),
)
def test_smaller_pod_requests_as_much_as_it_may(
    *, containers: list[int], init: list[tuple[bool, int]], pod: int, overhead: int, most: int
) -> None:
    """No smaller pod exists only if the overhead alone exceeds the amount."""
    whole = spec(containers, init, pod=max(pod, sum(containers)) if pod else 0, overhead=overhead)
    smaller = asking_at_most(whole, {"cpu": 1_000 * most})

    wanted = pod_requests(whole).get("cpu", 0)
    if wanted > 1_000 * most and most <= overhead:
        assert smaller is None
        return
    assert smaller is not None
    assert pod_requests(smaller).get("cpu", 0) == min(wanted, 1_000 * most)


@pytest.mark.parametrize(
    ("whole", "smaller"),
    [
        (spec([4], overhead=1), spec([2], overhead=1)),
        (spec([1], pod=4), spec([1], pod=3)),
        (spec([4], pod=4), spec([3], pod=3)),
        (spec([1], [(True, 3)]), spec([1], [(True, 2)])),
        (spec([1], [(True, 1), (False, 3)]), spec([1], [(True, 1), (False, 2)])),
    ],
)
def test_every_part_of_the_requests_is_reduced(whole: PodSpec, smaller: PodSpec) -> None:
    """Overhead stays; requests of the pod, sidecars and init containers shrink."""
    assert asking_at_most(whole, {"cpu": 3_000}) == smaller


def limited(request: str, limit: str) -> PodSpec:
    """Return a spec whose only container has a request, if not empty, and a limit of cpu."""
    requests = {"requests": {"cpu": request}} if request else {}
    resources = {**requests, "limits": {"cpu": limit}}
    return decode({"containers": [{"name": "c0", "resources": resources}]}, PodSpec)


@given(
    containers=st.lists(CORES, max_size=3),
    init=st.lists(INIT, max_size=3),
    pod=st.integers(0, 12),
    overhead=st.integers(0, 2),
    least=st.integers(1, 12),
)
def test_larger_pod_requests_exactly_the_amount(
    *, containers: list[int], init: list[tuple[bool, int]], pod: int, overhead: int, least: int
) -> None:
    """No larger pod exists if a larger container does not raise the requests as much."""
    whole = spec(containers, init, pod=max(pod, sum(containers)) if pod else 0, overhead=overhead)
    larger = asking_at_least(whole, "cpu", 1_000 * least)

    if larger is not None:
        assert pod_requests(larger)["cpu"] == 1_000 * least > pod_requests(whole).get("cpu", 0)
    elif containers and not pod and not init:
        assert pod_requests(whole)["cpu"] >= 1_000 * least


@pytest.mark.parametrize(
    "whole",
    [
        spec([1], [(False, 2)]),  # the init container still requests the most
        spec([]),
        limited("1500m", "1600m"),  # the request would exceed the limit
        decode(
            {"containers": [{"name": "c0"}], "resources": {"limits": {"cpu": "2"}}}, PodSpec
        ),  # a limit of the pod counts as its request
    ],
)
def test_pod_that_a_larger_container_does_not_enlarge(whole: PodSpec) -> None:
    """No larger spec exists, or an API server would reject it."""
    assert asking_at_least(whole, "cpu", 3_000) is None


@pytest.mark.parametrize(
    ("whole", "larger"),
    [
        (limited("1500m", "1500m"), limited("2", "2")),
        (limited("1500m", "4"), limited("2", "4")),
    ],
)
def test_limit_grows_with_an_equal_request(whole: PodSpec, larger: PodSpec) -> None:
    """A larger limit stays."""
    assert asking_at_least(whole, "cpu", 2_000) == larger
