"""Test suites and builders for authors of plugins; production code does not import them.

``scheduler_plugins``    contract suite for scheduler plugins
``descheduler_plugins``  contract suite for descheduler plugins
``worlds``               builders of nodes, pods and other objects, and of the scheduler's state
``strategies``           random clusters and pods for Hypothesis
"""

from importlib.util import find_spec

_missing = [name for name in ("hypothesis", "pytest") if find_spec(name) is None]
if _missing:
    raise ImportError(
        f"koordinator.testing needs {' and '.join(_missing)}: pip install 'koordinator[testing]'"
    )
