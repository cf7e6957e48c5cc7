"""Metrics of the manager have the names of the original, also where the library forbids them."""

from prometheus_client import CollectorRegistry, generate_latest

from koordinator.manager.metrics import ManagerMetrics
from koordinator.manager.mirror import Controller


def test_counts_have_the_names_of_the_original() -> None:
    """Dashboards of the original select them; counters of the library would end in _total."""
    registry = CollectorRegistry()
    metrics = ManagerMetrics(registry)
    for controller in (Controller.NODE_METRIC, Controller.NODE_SLO, Controller.NODE_RESOURCE):
        metrics.wrote(controller, "update", succeeded=True)
    metrics.rendered(succeeded=True)
    metrics.collects()
    series = generate_latest(registry).decode()

    for name in (
        "nodemetric_reconcile_count",
        "nodeslo_reconcile_count",
        "node_resource_reconcile_count",
        "nodemetric_spec_parse_count",
        "nodeslo_spec_parse_count",
    ):
        assert f"\nslo_controller_{name}{{" in series
    assert "\n# TYPE slo_controller_node_resource_run_plugin_status gauge\n" in series
