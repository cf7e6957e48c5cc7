"""CUDA program of known size: ``cuda_load.py --mib N --seconds S [--duty D]``.

It needs the standard library and the driver's ``libcuda.so.1`` only.  Each line of its output is
JSON: ``ready`` with the result of the allocation in CUDA's error codes, then the number of kernels
twice a second.  Exit code 3: the driver lacks a function or refuses one, named in ``error``.
Source: CUDA Driver API; PTX ISA.
"""

import argparse
import ctypes
import json
import os
import sys
import time

THREADS = 256
KERNEL_S = 0.02
REPORT_S = 0.5
MULTIPROCESSORS, MAJOR, MINOR = 16, 75, 76  # device attributes
#: Pretended drivers know no kernels; they count launches.
IS_PRETENDED = bool(os.environ.get("FAKE_GPU_STATE"))
#: As many tokens as HAMi-core's limiter refills in a moment, for a driver that runs no kernels.
PRETENDED_BLOCKS = 1 << 20

PTX = """
.version 6.3
.target {target}
.address_size 64
.visible .entry spin(.param .u32 count, .param .u64 result)
{{
  .reg .pred %p<2>;
  .reg .b32 %r<4>;
  .reg .b64 %rd<3>;
  ld.param.u32 %r1, [count];
  ld.param.u64 %rd1, [result];
  cvta.to.global.u64 %rd2, %rd1;
  mov.u32 %r2, 0;
  mov.u32 %r3, %tid.x;
AGAIN:
  mad.lo.u32 %r3, %r3, 1664525, 1013904223;
  add.u32 %r2, %r2, 1;
  setp.lt.u32 %p1, %r2, %r1;
  @%p1 bra AGAIN;
  st.global.u32 [%rd2], %r3;
  ret;
}}
"""


class CudaError(Exception):
    """Function of the driver that is missing or failed."""


class Load:
    """Context on the first GPU with a kernel that keeps all multiprocessors busy."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
        self._device = device
        self._function = ctypes.c_void_p()
        self._result = ctypes.c_uint64()
        self._count = 1000
        self._blocks = PRETENDED_BLOCKS
        if not IS_PRETENDED:
            self._load_kernel()

    def allocate(self, mib: int) -> int:
        """Allocate memory; return CUDA's error code, 0 for success."""
        address = ctypes.c_uint64()
        return self._code("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(mib << 20))

    def calibrate(self) -> None:
        """Choose the loop count of the kernel such that it takes about ``KERNEL_S``."""
        if IS_PRETENDED:
            return
        self.launch()  # the first launch includes loading
        while (seconds := self.launch()) < KERNEL_S / 2 and self._count < 1 << 28:
            self._count = int(self._count * min(max(KERNEL_S / seconds, 1.5), 8))

    def launch(self) -> float:
        """Run the kernel once; return its duration in seconds."""
        begin = time.perf_counter()
        count = ctypes.c_uint32(self._count)
        pointers = (ctypes.c_void_p * 2)(
            ctypes.cast(ctypes.byref(count), ctypes.c_void_p),
            ctypes.cast(ctypes.byref(self._result), ctypes.c_void_p),
        )
        grid, block = (self._blocks, 1, 1), (THREADS, 1, 1)
        self._call("cuLaunchKernel", self._function, *grid, *block, 0, None, pointers, None)
        self._call("cuCtxSynchronize")
        if IS_PRETENDED:
            time.sleep(KERNEL_S)
        return time.perf_counter() - begin

    def _load_kernel(self) -> None:
        capability = (self._attribute(MAJOR), self._attribute(MINOR))
        text = PTX.format(target="sm_75" if capability >= (7, 5) else "sm_50").encode()
        module = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(text))
        self._call("cuModuleGetFunction", ctypes.byref(self._function), module, b"spin")
        self._call("cuMemAlloc_v2", ctypes.byref(self._result), ctypes.c_size_t(4))
        self._blocks = 8 * self._attribute(MULTIPROCESSORS)

    def _attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), number, self._device)
        return value.value

    def _code(self, name: str, *words: object) -> int:
        try:
            function = getattr(self._cuda, name)
        except AttributeError:
            raise CudaError(f"the driver has no {name}") from None
        return int(function(*words))

    def _call(self, name: str, *words: object) -> None:
        code = self._code(name, *words)
        if code:
            raise CudaError(f"{name} returned {code}")


def _write(**line: object) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> int:
    """Allocate, then launch kernels until the time is over; return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--duty", type=float, default=1.0)
    flags = parser.parse_args()
    try:
        load = Load()
        code = load.allocate(flags.mib)
        load.calibrate()
        _write(event="ready", code=code)
        begin = reported = time.perf_counter()
        launches = 0
        while (now := time.perf_counter()) - begin < flags.seconds:
            busy = load.launch()
            launches += 1
            if flags.duty < 1:
                time.sleep(busy * (1 - flags.duty) / flags.duty)
            if now - reported >= REPORT_S:
                reported = now
                _write(event="launches", count=launches, at=now - begin)
    except (CudaError, OSError) as error:
        _write(event="error", error=str(error))
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
