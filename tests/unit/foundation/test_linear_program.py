"""Linear programs through the solver."""

import subprocess
import sys

import numpy as np
import pytest

from koordinator.foundation.errors import BugError
from koordinator.foundation.linear_program import LinearProgram


def program() -> LinearProgram:
    """Maximise 3 x + 2 y with x + y <= 4 and x + 3 y <= 6."""
    linear_program = LinearProgram(np.array([4.0, 6.0]))
    linear_program.add_columns(
        np.array([3.0, 2.0]), np.array([0, 2]), np.array([0, 1, 0, 1]), np.array([1.0, 1, 1, 3])
    )
    return linear_program


def test_solution_has_amounts_value_and_prices() -> None:
    """Only the first row binds: a unit more of it is worth 3."""
    solution = program().solve()

    assert solution.value == pytest.approx(12)
    assert solution.amounts.tolist() == pytest.approx([4, 0])
    assert solution.prices.tolist() == pytest.approx([3, 0])


def test_columns_and_limits_may_change_between_solves() -> None:
    """The next solve returns the optimum of the changed program."""
    made = program()
    made.solve()
    made.add_column(10.0, np.array([1]), np.array([1.0]))
    made.set_limits(np.array([4.0, 1.0]))

    assert made.solve().value == pytest.approx(10)


def test_without_columns_there_is_nothing_to_gain() -> None:
    """No limit has a price without columns."""
    solution = LinearProgram(np.array([1.0, 2.0])).solve()

    assert (solution.value, solution.amounts.tolist(), solution.prices.tolist()) == (0, [], [0, 0])


def test_a_program_without_optimum_is_our_mistake() -> None:
    """Unbounded: a column that no row limits."""
    linear_program = LinearProgram(np.array([1.0]))
    linear_program.add_column(1.0, np.array([0]), np.array([-1.0]))

    with pytest.raises(BugError, match="must have an optimum"):
        linear_program.solve()


def test_solver_prints_nothing() -> None:
    """Standard output belongs to the command that has something to solve."""
    script = (
        "import numpy as np\n"
        "from koordinator.foundation.linear_program import IntegerProgram, LinearProgram\n"
        "LinearProgram(np.array([1.0])).solve()\n"
        "whole = IntegerProgram()\n"
        "whole.add_row(1.0, 2.0, {whole.add_variable(1.0): 1.0})\n"
        "whole.solve()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )

    assert (done.stdout, done.stderr) == ("", "")
