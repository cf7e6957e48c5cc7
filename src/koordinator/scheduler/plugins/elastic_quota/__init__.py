"""Limits for teams and what they lend each other: the rules are ``domain.quota``.

``ledger``  all quotas with what their pods request and use, kept in step with the state
``plugin``  a pod that its quota has no room for waits, or makes room in it
"""

from koordinator.scheduler.plugins.elastic_quota.ledger import QuotaLedger, as_quota_pod
from koordinator.scheduler.plugins.elastic_quota.plugin import PLUGIN, ElasticQuotaPlugin

__all__ = ["PLUGIN", "ElasticQuotaPlugin", "QuotaLedger", "as_quota_pod"]
