"""Command ``koord vgpu-monitor``: the monitor of GPU slices."""

from koordinator.cli.component.dataclass_flags import with_flags
from koordinator.cli.vgpu_monitor.flags import VgpuMonitorFlags


@with_flags
def vgpu_monitor(flags: VgpuMonitorFlags) -> None:
    """Monitor GPU slices: serve metrics of their usage and of containers that wait."""
    from koordinator.cli.vgpu_monitor.process import (  # noqa: PLC0415 -- servers and clients take
        run_vgpu_monitor,  # half a second to load
    )

    run_vgpu_monitor(flags)
