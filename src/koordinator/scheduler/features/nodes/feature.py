"""Feature for pages about nodes.

Source: koordinator pkg/scheduler/frameworkext/services (the paths).
"""

from collections.abc import Mapping
from functools import partial
from typing import cast

from koordinator.scheduler.features.nodes.device_pages import device_summaries, device_summary
from koordinator.scheduler.features.nodes.load_page import load_page
from koordinator.scheduler.features.nodes.node_page import node_page
from koordinator.scheduler.features.nodes.numa_pages import numa_page
from koordinator.scheduler.loop.feature import Ask, Feature, Page
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.plugins import load_aware


class NodePagesFeature(Feature):
    """Pages of nodes, and of the data that node filters use."""

    def __init__(self, handle: SchedulerHandle) -> None:
        self._handle = handle

    def pages(self, ask: Ask) -> Mapping[str, Page]:
        """Return the pages of nodes, and of plugins that some profile has."""
        state, cycles = self._handle.state, self._handle.cycles.values()
        filters = [active for cycle in cycles for active in cycle.profile.filter]
        pages: dict[str, Page] = {
            "/plugins/DeviceShare/nodeDeviceSummaries": lambda _: ask(
                partial(device_summaries, state)
            ),
            "/plugins/DeviceShare/nodeDeviceSummaries/{name}": lambda given: ask(
                partial(device_summary, state, given["name"])
            ),
            "/plugins/NodeNUMAResource/nodes/{nodeName}": lambda given: ask(
                partial(numa_page, state, given["nodeName"])
            ),
        }
        # Looked up by name: timed plugins are wrapped in another class.
        by_name = {active.name: active.plugin for active in reversed(filters)}
        if load_aware.PLUGIN.name in by_name:  # of the first profile that has it
            load = cast("load_aware.LoadAwareScheduling", by_name[load_aware.PLUGIN.name])
            pages["/plugins/LoadAwareScheduling/node/{nodeName}"] = lambda given: ask(
                partial(load_page, state, load.rules, given["nodeName"])
            )
        on = {active.name for active in filters}
        shown = {path: page for path, page in pages.items() if path.split("/")[2] in on}
        return shown | {
            "/nodes/{nodeName}": lambda given: ask(partial(node_page, state, given["nodeName"]))
        }
