"""``koord`` whose loop hangs on a FIFO as soon as that exists: ``hanging.py FIFO COMMAND …``."""

import os
import sys
from pathlib import Path
from typing import Any

from koordinator.cli.main import main
from koordinator.koordlet.app import Koordlet
from koordinator.manager.app import Manager
from koordinator.scheduler.loop import Scheduler


def hang_on(fifo: Path, component: Any) -> None:
    """Make every step of a component look for the FIFO first, and read it."""
    step = component.step

    def step_or_hang(*args: Any, **kwargs: Any) -> Any:
        if fifo.exists():
            fifo.read_bytes()
        return step(*args, **kwargs)

    component.step = step_or_hang


if __name__ == "__main__":
    path = Path(sys.argv.pop(1))
    for each in (Koordlet, Manager, Scheduler):
        hang_on(path, each)
    sys.argv[0] = os.path.basename(sys.argv[0])  # noqa: PTH119 -- a name, no path
    main()
