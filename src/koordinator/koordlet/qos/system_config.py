"""Settings of the kernel that a NodeSLO changes.

Source: koordinator pkg/koordlet/qosmanager/plugins/sysreconcile/system_config.go.
"""

from koordinator.api.node_slo import SystemStrategy
from koordinator.koordlet.intents import Intent, SetFile
from koordinator.koordlet.view.node_view import NodeView

_KIB = 1024
_MIN_FREE_KB = range(10_240, 10_485_760 + 1)
_WATERMARK = range(10, 400 + 1)
_SWITCH = range(2)


def plan_system_config(view: NodeView) -> list[Intent]:
    """Return what is to be set; a value out of its range is left out, and the old one stays."""
    strategy = view.slo.system_strategy or SystemStrategy()
    wanted: list[tuple[str, str, int | None, range | None]] = [
        ("sysctl", "vm/min_free_kbytes", _min_free_kb(view, strategy), _MIN_FREE_KB),
        ("sysctl", "vm/watermark_scale_factor", strategy.watermark_scale_factor, _WATERMARK),
        (
            "sys",
            "kernel/mm/memcg_reaper/reap_background",
            strategy.memcg_reap_back_ground,
            _SWITCH,
        ),
        (
            "sysctl",
            "kernel/sched_group_identity_enabled",
            strategy.sched_group_identity_enabled,
            _SWITCH,
        ),
        ("sysctl", "kernel/sched_idle_saver_wmark", strategy.sched_idle_saver_wmark, None),
        ("sys", "kernel/mm/pagecache_limit/enabled", strategy.page_cache_limit_enabled, _SWITCH),
    ]
    intents: list[Intent] = [
        SetFile(tree, path, str(value), "system strategy", "node")
        for tree, path, value, accepted in wanted
        if value is not None and (accepted is None or value in accepted)
    ]
    for name, is_on in sorted(strategy.sched_features.items()):
        word = name if is_on else f"NO_{name}"
        intents.append(
            SetFile("sys", "kernel/debug/sched_features", word, "system strategy", "node", word)
        )
    return intents


def _min_free_kb(view: NodeView, strategy: SystemStrategy) -> int | None:
    factor = strategy.min_free_kbytes_factor
    if factor is None:
        return None
    return view.machine.memory_bytes // _KIB * factor // 10_000
