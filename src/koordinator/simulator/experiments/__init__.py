"""Experiments: a grid of sources, policies, seeds and parameters, in parallel processes.

``definition`` reads the grid; each run has a key, the digest of all that determines its result
``store``      one file per run, by key, so that a second call executes only missing runs
``pool``       processes that execute runs; ``worker`` is one run
``tables``     tables of all runs and the summary, with ``statistics``
``charts``     comparisons as SVG; ``page`` is the HTML report
``sweep``      all of it: ``koord experiment``
"""

from koordinator.simulator.experiments.definition import Experiment, ExperimentRun, read_experiment
from koordinator.simulator.experiments.sweep import (
    ExperimentInterrupted,
    ExperimentResult,
    experiment,
)

__all__ = [
    "Experiment",
    "ExperimentInterrupted",
    "ExperimentResult",
    "ExperimentRun",
    "experiment",
    "read_experiment",
]
