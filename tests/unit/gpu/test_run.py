"""``tests/gpu/run.sh`` on a machine without a GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.gpu.cuda_load import PTX
from tests.gpu.loads import Limits
from tests.gpu.probe import missing_gpu

SCRIPT = Path(__file__).parents[2] / "gpu/run.sh"


@pytest.mark.skipif(not missing_gpu(), reason="this machine has a GPU")
def test_without_a_gpu_a_message_is_printed(tmp_path: Path) -> None:
    """The exit code is 0 and no report is written."""
    report = tmp_path / "gpu.json"
    done = subprocess.run(
        [str(SCRIPT), str(report)],
        env=os.environ | {"PYTHON": sys.executable},
        check=False,
        capture_output=True,
        text=True,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("No check was run: ")
    assert done.stdout.count("\n") == 1
    assert not report.exists()


def test_load_has_a_kernel_for_the_target() -> None:
    text = PTX.format(target="sm_75")

    assert ".target sm_75" in text
    assert text.count("{") == text.count("}") == 1


def test_limits_are_the_variables_of_hami_core(tmp_path: Path) -> None:
    limits = Limits(tmp_path / "libvgpu.so", tmp_path / "a.cache", 24000, 30, 0)
    environment = limits.environment()

    assert environment["CUDA_DEVICE_MEMORY_LIMIT"] == "24000m"
    assert environment["CUDA_DEVICE_SM_LIMIT"] == "30"
    assert environment["LD_PRELOAD"] == environment["CUDA_REDIRECT"]
