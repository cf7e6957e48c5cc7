"""What holds for all tests."""

import os

from hypothesis import settings

# How long an example takes says more about what else the machine does than about the code.
settings.register_profile("koordinator", deadline=None)
# Whoever submits a change is told of that change: new examples are looked for at the desk.
settings.register_profile("ci", settings.get_profile("koordinator"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "koordinator")
