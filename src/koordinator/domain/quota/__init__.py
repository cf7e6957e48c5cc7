"""Elastic quotas: trees of limits whose unused part is lent to other quotas.

No I/O, no clock; amounts are integers: milli-CPU, whole units of everything else.

``spec``       ``QuotaSpec``: an ElasticQuota in amounts; index of quotas for admission
``shares``     redistribution of one resource among siblings, plain and compiled; cached shares of
               the children of one quota
``tree``       ``QuotaTree``: sums up to the root, runtime quota down from it
``trees``      ``QuotaTrees``: all trees of a cluster, and the quota of each pod
``figures``    reported figures of a quota
``admission``  admission of pods; preemption within a quota; eviction from quotas that exceed their
               limit
``remedies``   changes that would admit a rejected pod
``hooks``      hooks for custom rules and accounting
``validation``, ``place_validation``  defaults and checks of admission; warnings about stored quotas
"""

from koordinator.domain.quota.admission import (
    AdmissionRules,
    OveruseTimer,
    QuotaHeadroom,
    headroom_for,
    how_many,
    is_allowed_victim,
    limit_of,
    pods_to_revoke,
    why_not,
)
from koordinator.domain.quota.figures import Loan, QuotaFigures, figures_of, loans, with_status
from koordinator.domain.quota.hooks import HookFactory, QuotaHooks
from koordinator.domain.quota.place_validation import PlaceRules, message_for_clients
from koordinator.domain.quota.remedies import raised_limits, what_helps
from koordinator.domain.quota.spec import (
    QueueTerms,
    QuotaPod,
    QuotaSpec,
    QuotaTopology,
    check_queue_terms,
    quota_pod,
)
from koordinator.domain.quota.tree import QuotaTree
from koordinator.domain.quota.trees import DEFAULT_TREE, QuotaRules, QuotaTrees
from koordinator.domain.quota.validation import (
    QuotaWarnings,
    check_changed_pod,
    check_changed_quota,
    check_deleted_quota,
    check_new_quota,
    check_pod_quota,
    is_unchanged,
    warning_about,
    with_quota_defaults,
)

__all__ = [
    "DEFAULT_TREE",
    "AdmissionRules",
    "HookFactory",
    "Loan",
    "OveruseTimer",
    "PlaceRules",
    "QueueTerms",
    "QuotaFigures",
    "QuotaHeadroom",
    "QuotaHooks",
    "QuotaPod",
    "QuotaRules",
    "QuotaSpec",
    "QuotaTopology",
    "QuotaTree",
    "QuotaTrees",
    "QuotaWarnings",
    "check_changed_pod",
    "check_changed_quota",
    "check_deleted_quota",
    "check_new_quota",
    "check_pod_quota",
    "check_queue_terms",
    "figures_of",
    "headroom_for",
    "how_many",
    "is_allowed_victim",
    "is_unchanged",
    "limit_of",
    "loans",
    "message_for_clients",
    "pods_to_revoke",
    "quota_pod",
    "raised_limits",
    "warning_about",
    "what_helps",
    "why_not",
    "with_quota_defaults",
    "with_status",
]
