"""Elastic quotas of teams; the rules are in ``domain.quota``.

``ledger``  all quotas with the requests and usage of their pods, in step with the state
``plugin``  admission against the quota, and preemption inside it
"""

from koordinator.scheduler.plugins.elastic_quota.ledger import QuotaLedger
from koordinator.scheduler.plugins.elastic_quota.plugin import (
    PLUGIN,
    ElasticQuotaPlugin,
    plugin_spec,
)

__all__ = ["PLUGIN", "ElasticQuotaPlugin", "QuotaLedger", "plugin_spec"]
