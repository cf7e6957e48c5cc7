"""Test suites that ship for authors of plugins."""

import subprocess
import sys
from pathlib import Path

import koordinator


def test_without_hypothesis_the_package_names_the_extra() -> None:
    """A Python that sees koordinator and nothing that is installed."""
    source = Path(koordinator.__file__).parents[1]
    program = f"import sys; sys.path.insert(0, {str(source)!r}); import koordinator.testing"
    command = [sys.executable, "-I", "-S", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert "needs hypothesis and pytest: pip install 'koordinator[testing]'" in done.stderr
