"""Kernel settings of the NodeSLO's system strategy.

Source: koordinator pkg/koordlet/qosmanager/plugins/sysreconcile/system_config.go.
"""

from typing import Final

from koordinator.api.bounds import ANY, Bounds, accepted_by
from koordinator.api.node_slo import SystemStrategy
from koordinator.koordlet.intents import Intent, SetFile
from koordinator.koordlet.view.node_view import NodeView

_KIB = 1024
_MIN_FREE_KB: Final = Bounds(10_240, 10_485_760)
_FILES: Final = (
    ("sysctl", "vm/watermark_scale_factor", "watermark_scale_factor"),
    ("sys", "kernel/mm/memcg_reaper/reap_background", "memcg_reap_back_ground"),
    ("sysctl", "kernel/sched_group_identity_enabled", "sched_group_identity_enabled"),
    ("sysctl", "kernel/sched_idle_saver_wmark", "sched_idle_saver_wmark"),
    ("sys", "kernel/mm/pagecache_limit/enabled", "page_cache_limit_enabled"),
)


def plan_system_config(view: NodeView) -> list[Intent]:
    """Return the settings; an out-of-range value is skipped, and the present one stays."""
    strategy, accepted = view.slo.system_strategy or SystemStrategy(), accepted_by(SystemStrategy)
    wanted: list[tuple[str, str, int | None, Bounds]] = [
        ("sysctl", "vm/min_free_kbytes", _min_free_kb(view, strategy), _MIN_FREE_KB),
        *(
            (
                tree,
                path,
                getattr(strategy, field),
                accepted[field].written if field in accepted else ANY,
            )
            for tree, path, field in _FILES
        ),
    ]
    intents: list[Intent] = [
        SetFile(tree, path, str(value), "system strategy", "node")
        for tree, path, value, bounds in wanted
        if value is not None and value in bounds
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
