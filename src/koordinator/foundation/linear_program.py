"""Linear and integer programs, solved by HiGHS."""

from collections.abc import Mapping

import highspy
import numpy as np

from koordinator.foundation.arrays import FloatArray, IntArray
from koordinator.foundation.errors import BugError
from koordinator.foundation.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class LinearSolution:
    """An optimum: ``value == limits @ prices`` up to rounding, unless amounts have a highest."""

    value: float
    amounts: FloatArray  # (n_columns,), >= 0
    prices: FloatArray  # (n_rows,), >= 0: growth of ``value`` per unit of the row's limit


class LinearProgram:
    """Maximise ``values @ x`` subject to ``A @ x <= limits`` and ``x >= 0``.

    Columns may be added and limits changed after a solve; the next one starts from the last basis.
    """

    def __init__(self, limits: FloatArray) -> None:
        rows = len(limits)
        self._solver = highspy.Highs()  # type: ignore[no-untyped-call]  # as highspy has it
        self._solver.setOptionValue("output_flag", False)
        self._solver.setOptionValue("threads", 1)
        self._solver.addRows(
            rows,
            np.full(rows, -highspy.kHighsInf),
            limits,
            0,
            np.zeros(rows, np.int32),
            np.empty(0, np.int32),
            np.empty(0),
        )

    def add_columns(
        self,
        values: FloatArray,
        starts: IntArray,
        rows: IntArray,
        coefficients: FloatArray,
        *,
        highest: float = highspy.kHighsInf,
    ) -> None:
        """Add sparse columns: column j touches ``rows[starts[j]:starts[j + 1]]``.

        Their amounts are at most ``highest``.
        """
        columns = len(values)
        self._solver.addCols(
            columns,
            -values,
            np.zeros(columns),
            np.full(columns, highest),
            len(rows),
            starts.astype(np.int32),
            rows.astype(np.int32),
            coefficients,
        )

    def add_column(self, value: float, rows: IntArray, coefficients: FloatArray) -> None:
        """Add one sparse column."""
        self.add_columns(np.array([value]), np.zeros(1, np.int64), rows, coefficients)

    def set_limits(self, limits: FloatArray) -> None:
        """Replace all limits."""
        for row, limit in enumerate(limits.tolist()):
            self._solver.changeRowBounds(row, -highspy.kHighsInf, limit)

    def solve(self) -> LinearSolution:
        """Return an optimum.  There must be one: ``BugError`` otherwise."""
        if not self._solver.getNumCol():
            return LinearSolution(0.0, np.zeros(0), np.zeros(self._solver.getNumRow()))
        self._solver.run()
        status = self._solver.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            raise BugError(f"a linear program must have an optimum. Got {status.name}.")
        solution = self._solver.getSolution()
        return LinearSolution(
            -self._solver.getInfo().objective_function_value,
            np.maximum(np.array(solution.col_value, float), 0.0),
            np.maximum(-np.array(solution.row_dual, float), 0.0),
        )


class IntegerProgram:
    """Minimise ``costs @ x`` over whole numbers ``x`` within bounds, subject to rows of limits."""

    def __init__(self) -> None:
        self._costs: list[float] = []
        self._highest: list[float] = []
        self._rows: list[tuple[float, float, dict[int, float]]] = []

    def add_variable(self, cost: float = 0.0, highest: float = 1.0) -> int:
        """Add a whole number in ``0..highest``; return its position in ``x``."""
        self._costs.append(cost)
        self._highest.append(highest)
        return len(self._costs) - 1

    def add_row(self, lowest: float, highest: float, coefficients: Mapping[int, float]) -> None:
        """Demand ``lowest <= sum of coefficient * x[position] <= highest``."""
        self._rows.append((lowest, highest, dict(coefficients)))

    def solve(self, *, most_nodes: int | None = None, gap: float = 0.0) -> IntArray | None:
        """Return an optimum, None if nothing fulfils the rows.

        With a ``gap``, what costs at most so much more; after ``most_nodes`` of the search tree the
        best so far, None if there is none.
        """
        solver = highspy.Highs()  # type: ignore[no-untyped-call]  # as highspy has it
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("threads", 1)
        count = len(self._costs)
        solver.addVars(count, np.zeros(count), np.array(self._highest))
        everything = np.arange(count, dtype=np.int32)
        solver.changeColsCost(count, everything, np.array(self._costs))
        whole = np.full(count, int(highspy.HighsVarType.kInteger), np.uint8)
        solver.changeColsIntegrality(count, everything, whole)
        for lowest, highest, coefficients in self._rows:
            columns = np.array(list(coefficients), np.int32)
            values = np.array(list(coefficients.values()), float)
            solver.addRow(lowest, highest, len(columns), columns, values)
        solver.setOptionValue("mip_rel_gap", 0.0)
        solver.setOptionValue("mip_abs_gap", gap or 1e-6)
        if most_nodes is not None:
            solver.setOptionValue("mip_max_nodes", most_nodes)
        solver.run()
        status = solver.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            return None
        if status == highspy.HighsModelStatus.kSolutionLimit:
            if not solver.getSolution().value_valid:
                return None
        elif status != highspy.HighsModelStatus.kOptimal:
            raise BugError(f"an integer program must have an optimum or none. Got {status.name}.")
        solution: IntArray = np.rint(np.array(solver.getSolution().col_value)).astype(np.int64)
        return solution
