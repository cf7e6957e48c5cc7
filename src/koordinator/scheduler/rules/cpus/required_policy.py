"""What a required bind policy leaves of the free CPUs, and whether a choice obeys it.

Source: koordinator pkg/scheduler/plugins/nodenumaresource/resource_manager.go,
``filterCPUsByRequiredCPUBindPolicy``, ``satisfiedRequiredCPUBindPolicy``.
"""

from koordinator.api.annotations.numa import CpuBindPolicy
from koordinator.scheduler.rules.cpus.layout import CpuLayout


def usable_under(policy: str, layout: CpuLayout, free: int) -> int:
    """Return the free CPUs that a required policy may take.

    FullPCPUs: those of cores that are free as a whole.  SpreadByPCPUs: the lowest free one of each
    core.
    """
    if policy == CpuBindPolicy.FULL_PCPUS:
        return layout.cpus_of(layout.whole_cores(free)) & free
    if policy == CpuBindPolicy.SPREAD_BY_PCPUS:
        usable = seen = 0
        for rank, among in enumerate(layout.threads(free)):
            usable |= layout.thread(among & ~seen, rank)
            seen |= among
        return usable
    return free


def obeys(policy: str, layout: CpuLayout, cpus: int) -> bool:
    """Return whether the CPUs are whole cores (FullPCPUs), or each of another (SpreadByPCPUs)."""
    cores = layout.cores_of(cpus).bit_count()
    if policy == CpuBindPolicy.FULL_PCPUS:
        return cores * layout.cpus_per_core == cpus.bit_count()
    if policy == CpuBindPolicy.SPREAD_BY_PCPUS:
        return cores == cpus.bit_count()
    return True
