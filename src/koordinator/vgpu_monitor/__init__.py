"""What containers use of the slices of GPUs that HAMi-core cuts, and who of them has to wait.

HAMi-core runs inside of the containers and keeps what it knows in a file per container, the shared
region.  The monitor reads these files on the node, shows them as metrics and writes back two
numbers: whether the next kernel waits, and whether the limit of cores is in force.
``region`` knows the format, ``feedback`` decides, ``placement`` says whose a region is, ``monitor``
is the loop, ``metrics`` what is shown.  Nothing in a region is believed about other containers.
Source: HAMi-core src/multiprocess/multiprocess_memory_limit.h; HAMi cmd/vGPUmonitor.
"""
