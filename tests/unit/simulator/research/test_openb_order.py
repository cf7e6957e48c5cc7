"""Random numbers equal those that Go's math/rand draws, seed by seed."""

import pytest

from koordinator.simulator.research.openb_order import GoRandom


@pytest.mark.parametrize(
    ("seed", "numbers", "permutation", "shuffled"),
    [
        (0, (8717895732742165505, 514, 1), [5, 2, 4, 3, 1, 0], [6, 0, 3, 7, 4, 5, 2, 1]),
        (1, (5577006791947779410, 887, 7), [4, 3, 0, 1, 5, 2], [6, 7, 0, 5, 1, 4, 3, 2]),
        (42, (3440579354231278675, 987, 4), [0, 4, 5, 2, 3, 1], [2, 3, 4, 0, 6, 1, 7, 5]),
        (-7, (747107023976529931, 928, 2), [4, 5, 1, 0, 3, 2], [5, 1, 7, 0, 4, 6, 3, 2]),
    ],
)
def test_numbers_are_those_of_go(
    seed: int, numbers: tuple[int, int, int], permutation: list[int], shuffled: list[int]
) -> None:
    """Printed by ``go run`` for Int63, Intn(1000), Intn(8), Perm(6) and Shuffle of 8."""
    random = GoRandom(seed)

    assert (random.int63(), random.intn(1000), random.intn(8)) == numbers
    assert random.permutation(6) == permutation
    items = list(range(8))
    random.shuffle(items)
    assert items == shuffled
