"""A virtual machine with cgroup v2, in which tests of the node agent run.

``python -m tests.vm COMMAND…`` runs a command in it.  The kernel and QEMU are Debian's, unpacked
into the cache without being installed; the root is that of this machine, read-only below an overlay
in memory, so that the repository, its virtual environment and the programs that the end-to-end
tests have built have their usual paths.

``packages``  QEMU and the kernel.
``initramfs``  the archive that the kernel starts from.
``machine``  starts the virtual machine and runs commands in it.
``shell_server``  the server in it that runs them.
``node``  kubelet, containerd and the agent in it.
"""
