"""Search for an NVIDIA GPU; exit code 4 without one.  It needs the standard library only."""

import ctypes
import sys

#: Differs from the exit code of an exception.
NO_GPU = 4


def missing_gpu() -> str:
    """Return why there is no usable NVIDIA GPU; empty if there is one."""
    try:
        driver = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return "there is no NVIDIA driver (libnvidia-ml.so.1)"
    code = driver.nvmlInit_v2()
    if code:
        return f"the NVIDIA driver does not start (nvmlInit_v2 returned {code})"
    count = ctypes.c_uint()
    code = driver.nvmlDeviceGetCount_v2(ctypes.byref(count))
    return "" if not code and count.value else "the NVIDIA driver has no GPU"


def main() -> int:
    """Print why there is no GPU; return ``NO_GPU`` in that case."""
    reason = missing_gpu()
    if reason:
        sys.stdout.write(f"No check was run: {reason}.\n")
    return NO_GPU if reason else 0


if __name__ == "__main__":
    sys.exit(main())
