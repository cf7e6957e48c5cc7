"""Type of a benchmark."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Benchmark:
    """``run(scale)`` returns figures to print; ``scale`` is the share of the pods to run."""

    title: str
    target: str
    run: Callable[[float], dict[str, Any]]
