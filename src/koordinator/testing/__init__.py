"""What an author of plugins tests them with; production code does not import it.

``scheduler_plugins``    the suite that every plugin of the scheduler passes
``descheduler_plugins``  the suite that every plugin of the descheduler passes
``worlds``               builders of nodes, pods and other objects, and of the scheduler's state
``strategies``           random clusters and pods for Hypothesis
"""

from importlib.util import find_spec

_missing = [name for name in ("hypothesis", "pytest") if find_spec(name) is None]
if _missing:
    raise ImportError(
        f"koordinator.testing needs {' and '.join(_missing)}: pip install 'koordinator[testing]'"
    )
