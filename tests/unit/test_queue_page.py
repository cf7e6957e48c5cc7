"""``docs/how-to/queue-jobs.md`` is true."""

from pathlib import Path

import yaml
from tests.markdown import code_blocks
from tests.unit.scheduler.test_gangs_in_quotas import BOTH
from tests.unit.scheduler.test_job_queues import LABEL, queues_of
from tests.worlds import embedded, node, pod

from koordinator.api.annotations.quota import QueueOrder, QueuePolicy
from koordinator.api.codec import decode
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.kubescheduler import ElasticQuotaArgs
from koordinator.scheduler.rules.job_queues import QueueRules

PAGE = (Path(__file__).parents[2] / "docs/how-to/queue-jobs.md").read_text("utf-8")


def test_the_quota_of_the_page_has_the_queue_it_shows() -> None:
    """Policy, order and depth are read from its annotations."""
    (manifest,) = code_blocks(PAGE, "yaml")
    quota = decode(yaml.load(manifest, yaml.CSafeLoader), ElasticQuota)

    one = embedded(node("n"), quota, pod("p", 1, labels={LABEL: "research"}), config=BOTH)
    one.run_to_fixed_point()

    (queue,) = queues_of(one).queues.values()
    assert queue.rules == QueueRules(QueuePolicy.BACKFILL, QueueOrder.FAIR_SHARE, 64)


def test_the_defaults_of_the_page_are_those_of_the_arguments() -> None:
    """The page explains every accepted word."""
    args = ElasticQuotaArgs()
    for text in (
        f"defaultQueuePolicy: {args.default_queue_policy}",
        f"defaultQueueOrder: {args.default_queue_order}",
        f"defaultQueueDepth: {args.default_queue_depth}",
        *(f"`{word}`" for word in (*QueuePolicy, *QueueOrder)),
    ):
        assert text in PAGE
