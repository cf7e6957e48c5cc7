"""``koord device-daemon``: describes accelerators of vendors other than NVIDIA."""

from koordinator.cli.component.dataclass_flags import with_flags
from koordinator.cli.device_daemon.flags import DeviceDaemonFlags


@with_flags
def device_daemon(flags: DeviceDaemonFlags) -> None:
    """Describe NPUs, MLUs, XPUs and MetaX GPUs for the node agent, by their vendors' tools."""
    from koordinator.cli.device_daemon.process import run_device_daemon  # noqa: PLC0415

    run_device_daemon(flags)
