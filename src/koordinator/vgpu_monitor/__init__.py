"""vGPU monitor: usage of GPU shares by containers, and their order of precedence.

HAMi-core runs inside of the containers and keeps its state in a file per container, the shared
region.  The monitor reads these files on the node, exports metrics, and writes two numbers back:
whether the next kernel waits, and whether the core limit is enforced.
``region`` knows the format, ``feedback`` decides, ``placement`` determines the owner of a region,
``monitor`` is the loop, ``metrics`` the exporter.  The content of a region never affects the
ownership or the GPUs of other containers.
Source: HAMi-core src/multiprocess/multiprocess_memory_limit.h; HAMi cmd/vGPUmonitor.
"""
