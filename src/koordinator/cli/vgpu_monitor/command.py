"""``koord vgpu-monitor``: watches slices of GPUs."""

from koordinator.cli.component.dataclass_flags import with_flags
from koordinator.cli.vgpu_monitor.flags import VgpuMonitorFlags


@with_flags
def vgpu_monitor(flags: VgpuMonitorFlags) -> None:
    """Watch slices of GPUs: show what containers use of them, and who waits for whom."""
    from koordinator.cli.vgpu_monitor.process import (  # noqa: PLC0415 -- servers and clients take
        run_vgpu_monitor,  # half a second to load
    )

    run_vgpu_monitor(flags)
