"""Precedence of containers, and enforcement of core limits."""

from hypothesis import given
from hypothesis import strategies as st

from koordinator.vgpu_monitor.feedback import GpuSharer, SharerOrder, orders


def sharer(priority: int, recent: int = 2, *gpus: int) -> GpuSharer:
    return GpuSharer(frozenset(gpus or (0,)), priority, recent)


WAIT, FREE = SharerOrder(-1, 1), SharerOrder(1, 0)


def test_a_lone_container_may_exceed_its_cores() -> None:
    """The limit of the container is off, and after two rounds without a kernel it is idle."""
    assert orders([sharer(1)]) == [FREE]
    assert orders([sharer(1, 1)]) == [SharerOrder(0, 0)]


def test_two_of_one_priority_have_their_limits_in_force() -> None:
    """Until one of them has launched nothing for a round."""
    assert orders([sharer(1), sharer(1)]) == [SharerOrder(1, 1)] * 2
    assert orders([sharer(1), sharer(1, 1)]) == [FREE, SharerOrder(0, 0)]


def test_the_less_important_waits_while_the_more_important_works() -> None:
    """The less important process continues when the other is idle."""
    assert orders([sharer(0), sharer(1)]) == [FREE, WAIT]
    assert orders([sharer(0), sharer(1, -1)]) == [FREE, WAIT]
    assert orders([sharer(0, 1), sharer(1, -1)]) == [SharerOrder(0, 0), SharerOrder(0, 0)]


def test_only_containers_on_the_same_gpu_are_compared() -> None:
    """One shared GPU of several is enough."""
    assert orders([sharer(0, 2, 1), sharer(1, 2, 0)]) == [FREE, FREE]
    assert orders([sharer(0, 2, 0, 1), sharer(1, 2, 1, 2)]) == [FREE, WAIT]


def test_negative_priority_neither_waits_nor_blocks() -> None:
    """The core limit of the container is off."""
    assert orders([sharer(-5), sharer(1), sharer(0)]) == [FREE, WAIT, FREE]


def test_any_priority_is_a_number_like_any_other() -> None:
    """The monitor of HAMi v2.6.0 knows 0 and 1 only."""
    huge = 2**31 - 1
    assert orders([sharer(huge), sharer(huge - 1)]) == [WAIT, FREE]


def test_a_kernel_of_late_makes_a_container_active_without_a_trace() -> None:
    """The library leaves none while its limit is off, and would never be limited again."""
    busy = GpuSharer(frozenset({0}), 1, 0, idle_s=1.0)
    assert orders([busy, busy]) == [SharerOrder(0, 1)] * 2
    assert orders([busy, sharer(2)]) == [SharerOrder(0, 0), WAIT]


def test_old_or_future_kernel_time_does_not_count_as_activity() -> None:
    """A container writes what it likes."""
    for idle_s in (10.0, -1e9):
        assert orders([GpuSharer(frozenset({0}), 0, 0, idle_s), sharer(1)])[1] == FREE


def test_a_trace_that_no_kernel_leaves_is_no_longer_believed() -> None:
    """A container that writes two billion would be active for 340 years after its end."""
    assert orders([sharer(0, 2**31 - 1)])[0].recent_kernel == 1
    assert orders([sharer(0, -(2**31))])[0].recent_kernel == 0


@given(
    st.lists(
        st.builds(
            GpuSharer,
            st.frozensets(st.integers(0, 3)),
            st.integers(-2, 3),
            st.integers(-(2**31), 2**31 - 1),
        ),
        max_size=8,
    )
)
def test_each_gpu_has_a_container_that_does_not_wait(sharers: list[GpuSharer]) -> None:
    """A container with the best priority on all of its GPUs never waits."""
    result = orders(sharers)
    best = min((each.priority for each in sharers if each.priority >= 0), default=None)
    for each, order in zip(sharers, result, strict=True):
        if each.priority < 0 or each.priority == best or not each.gpus:
            assert order.recent_kernel >= 0
        assert order.recent_kernel in {-1, 0, 1}
        assert order.switch in {0, 1}
