"""A few worlds of the fuzzer, always the same: no rule breaks, and nothing is left to chance."""

import logging

import pytest
from tests.fuzz.devices import play as play_devices
from tests.fuzz.permuted import permuted
from tests.fuzz.play import Play
from tests.fuzz.script import script_of
from tests.fuzz.search import played

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def _quiet() -> None:
    logging.getLogger("koordinator").setLevel(logging.ERROR)


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [*range(6), 50313, 777614]
)  # rounds without end; a place without an event
def test_no_rule_is_broken(seed: int) -> None:
    """The invariants hold in random worlds; ``--seed N --count 1`` repeats one and shrinks it."""
    finding = played(script_of(seed))
    assert finding is None, finding.trace


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(9, 11))
def test_the_same_seed_has_the_same_outcome(seed: int) -> None:
    one, other = Play(script_of(seed), checks=False), Play(script_of(seed), checks=False)
    one.run()
    other.run()
    assert one.digest() == other.digest()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 12, 122])  # tolerations and requests in other orders
def test_the_order_of_lists_and_maps_decides_nothing(seed: int) -> None:
    """Only the order of lists in which it has a meaning is kept in both worlds."""
    one, other = (
        Play(script, checks=False) for script in (script_of(seed), permuted(script_of(seed)))
    )
    one.run()
    other.run()
    assert one.digest() == other.digest()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [6, 133, 5052])  # nodes that were not looked at again; late writes
def test_every_device_has_at_most_one_owner_and_no_leaked_allocation(seed: int) -> None:
    """``python -m tests.fuzz.devices --seed N --worlds 1`` plays one of them."""
    play_devices(seed)
