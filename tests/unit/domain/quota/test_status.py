"""Status of a quota in the object."""

import json

from tests.unit.domain.quota.quotas import GIB, pod, quota

from koordinator.api.codec import merge_patch, to_manifest
from koordinator.api.elastic_quota import ROOT_QUOTA
from koordinator.domain.quota import QuotaSpec, QuotaTree, figures_of, with_status

PREFIX = "quota.scheduling.koordinator.sh/"
A = quota("a", most={"cpu": 4, "memory": "8Gi"}, least={"cpu": "500m"})


def tree(*, guarantees_usage: bool = False) -> QuotaTree:
    made = QuotaTree(guarantees_usage=guarantees_usage)
    made.set_total({"cpu": 10_000, "memory": 100 * GIB})
    made.put(QuotaSpec.of(A))
    return made


def test_an_unused_quota_is_not_updated() -> None:
    """Nothing is as good as 0."""
    assert with_status(A, figures_of(tree(), "a")) is A


def test_figures_are_written_as_quantities() -> None:
    """CPU in cores, memory in binary units; what is 0 is written beside what is not."""
    made = tree()
    made.put_pod("a", pod("ns/p", cpu=1_500, preemptible=False))
    made.assign("a", "ns/p")

    reported = with_status(A, figures_of(made, "a"))

    cores = {"cpu": "1500m", "memory": "0"}
    assert to_manifest(reported)["status"] == {"used": cores}
    patch = merge_patch(A, reported)
    written = {
        key.removeprefix(PREFIX): json.loads(text)
        for key, text in patch["metadata"]["annotations"].items()
    }
    assert written == dict.fromkeys(
        ("runtime", "request", "child-request", "non-preemptible-request", "non-preemptible-used"),
        cores,
    )
    assert with_status(reported, figures_of(made, "a")) is reported


def test_a_figure_that_falls_to_nothing_is_reported() -> None:
    """As 0 of each resource that the quota limits."""
    made = tree()
    made.put_pod("a", pod("ns/p", cpu=1_500))
    made.assign("a", "ns/p")
    reported = with_status(A, figures_of(made, "a"))
    made.remove_pod("a", "ns/p")

    again = with_status(reported, figures_of(made, "a"))

    assert to_manifest(again)["status"] == {"used": {"cpu": "0", "memory": "0"}}
    assert json.loads(again.metadata.annotations[f"{PREFIX}runtime"]) == {"cpu": "0", "memory": "0"}


def test_guarantees_are_reported_where_there_are_any() -> None:
    """The gate ElasticQuotaGuaranteeUsage."""
    made = tree(guarantees_usage=True)
    made.put_pod("a", pod("ns/p", memory=GIB))
    made.assign("a", "ns/p")

    annotations = with_status(A, figures_of(made, "a")).metadata.annotations

    assert json.loads(annotations[f"{PREFIX}allocated"]) == {"cpu": "0", "memory": "1Gi"}
    assert json.loads(annotations[f"{PREFIX}guaranteed"]) == {"cpu": "500m", "memory": "1Gi"}


def test_an_annotation_that_cannot_be_read_is_replaced() -> None:
    """Other annotations of the quota stay."""
    broken = quota("a", most={"cpu": 4}, annotations={f"{PREFIX}runtime": "{", "mine": "kept"})

    annotations = with_status(broken, figures_of(tree(), "a")).metadata.annotations

    assert annotations == {f"{PREFIX}runtime": '{"cpu":"0","memory":"0"}', "mine": "kept"}


def test_the_root_reports_sums_but_no_runtime() -> None:
    """The sum of the children's requests is the root's request."""
    made = tree()
    made.put_pod("a", pod("ns/p", cpu=1_000))
    made.assign("a", "ns/p")

    reported = with_status(quota(ROOT_QUOTA), figures_of(made, ROOT_QUOTA))

    assert to_manifest(reported)["status"] == {"used": {"cpu": "1"}}
    assert reported.metadata.annotations == {f"{PREFIX}request": '{"cpu":"1"}'}
