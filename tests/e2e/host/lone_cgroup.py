"""One cgroup of its own, in the first hierarchy that there is, and processes that spin in it."""

import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.host.machine import CGROUPS, SPIN, remove_cgroup


@contextmanager
def lone_cgroup(hierarchies: Sequence[str], spinners: int) -> Iterator[Path]:
    """Make the cgroup, and remove it; raises FileNotFoundError without a hierarchy."""
    roots = (CGROUPS / name for name in hierarchies)
    root = next((path for path in roots if (path / "cgroup.procs").exists()), None)
    if root is None:
        raise FileNotFoundError(f"no hierarchy {' or '.join(hierarchies)}")
    folder = root / f"koordlet-test-{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    processes = [subprocess.Popen([sys.executable, "-S", "-c", SPIN]) for _ in range(spinners)]
    try:
        for process in processes:
            (folder / "cgroup.procs").write_text(str(process.pid))
        yield folder
    finally:
        for process in processes:
            process.kill()
            process.wait(10)
        remove_cgroup(folder)
