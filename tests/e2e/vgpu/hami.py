"""HAMi-core's real library over pretended drivers, compiled where its source and a compiler are."""

import os
import shutil
import struct
import subprocess
from pathlib import Path

_SHARED = Path(__file__).parents[4] / "shared/hami"
_ROW = struct.Struct("<iiQII")  # pid, GPU, bytes, percent, launches
SOURCE = "HAMI_CORE_SOURCE"


def missing() -> str:
    """Return why the library can't be compiled here; empty if it can."""
    if not os.environ.get(SOURCE):
        return f"{SOURCE} names no checkout of HAMi-core"
    if not (_SHARED / "build.sh").exists():
        return "there are no pretended drivers in ../shared/hami"
    if shutil.which("gcc") is None:
        return "there is no gcc"
    return ""


class HamiCore:
    """The compiled library and tasks that use it; ``folder`` is for all files."""

    def __init__(self, folder: Path) -> None:
        self._here = folder / "hami"
        self._out = self._here / "out"
        self._state = folder / "gpu.state"
        shutil.copytree(_SHARED, self._here)
        subprocess.run(
            ["/bin/bash", str(self._here / "build.sh"), os.environ[SOURCE]],
            check=True,
            capture_output=True,
            timeout=120,
        )

    def start(self, region: Path, wanted_percent: int) -> subprocess.Popen[bytes]:
        """Start a task on the first GPU, 50 kernels a second, limited to 30 % of its cores.

        ``wanted_percent`` of the cores are what these kernels would use.
        """
        library = str(self._out / "libvgpu.so")
        return subprocess.Popen(
            [str(self._out / "task"), "120", "64", "0"],
            env={
                "PATH": os.environ["PATH"],
                "LD_LIBRARY_PATH": str(self._out),
                "LD_PRELOAD": library,
                "CUDA_REDIRECT": library,
                "CUDA_DEVICE_MEMORY_LIMIT": "2g",
                "CUDA_DEVICE_SM_LIMIT": "30",
                "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(region),
                "LIBCUDA_LOG_LEVEL": "0",
                "FAKE_GPU_STATE": str(self._state),
                "FAKE_GPU_SM": str(wanted_percent),
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def launches(self, task: subprocess.Popen[bytes]) -> int:
        """Return how many kernels of a task the pretended driver has counted."""
        data = self._state.read_bytes() if self._state.exists() else b""
        return sum(row[4] for row in _ROW.iter_unpack(data) if row[0] == task.pid)
