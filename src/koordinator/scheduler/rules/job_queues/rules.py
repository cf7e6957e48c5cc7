"""How the jobs of one quota wait."""

from dataclasses import dataclass

from koordinator.api.annotations.quota import QueueOrder, QueuePolicy
from koordinator.api.kubescheduler import ElasticQuotaArgs
from koordinator.domain.quota.queue_terms import QueueTerms


@dataclass(frozen=True, slots=True)
class QueueRules:
    """In which order jobs wait, and how many may be tried at once."""

    policy: QueuePolicy
    order: QueueOrder = QueueOrder.FIFO
    depth: int = 32  # jobs from the first on that policies other than strict look at

    @classmethod
    def of(cls, terms: QueueTerms, args: ElasticQuotaArgs) -> "QueueRules | None":
        """Return the rules of a quota; None if its jobs don't wait for each other."""
        policy = terms.policy or QueuePolicy(args.default_queue_policy)
        if policy is QueuePolicy.NONE:
            return None
        order = terms.order or QueueOrder(args.default_queue_order)
        return cls(policy, order, terms.depth or args.default_queue_depth)
