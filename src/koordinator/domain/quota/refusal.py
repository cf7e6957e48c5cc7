"""Refusals of the quota webhooks with the messages of the Go original.

Source: koordinator pkg/webhook/elasticquota/quota_topology.go, quota_topology_check.go,
pod_check.go.
"""

from koordinator.api.annotations.quota import SHARED_WEIGHT
from koordinator.api.core import ResourceList
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.foundation.errors import InputError


class QuotaInputError(InputError):
    """A refusal for which the Go original has a message; ``original`` is that message.

    The text of the error itself names object, field and expected values.
    """

    def __init__(
        self, original: str, problem: str, *, source: str = "", subject: str = "", path: str = ""
    ) -> None:
        self.original = original
        super().__init__(problem, source=source, subject=subject, path=path)

    def within(self, *, source: str = "", subject: str = "", path: str = "") -> "QuotaInputError":
        """Return the same refusal with missing parts filled in, as ``InputError.within`` does."""
        return refused_as(self.original, super().within(source=source, subject=subject, path=path))


def refused_as(original: str, error: InputError) -> QuotaInputError:
    """Return ``error`` with the message ``original`` of the Go original."""
    return QuotaInputError(
        original, error.problem, source=error.source, subject=error.subject, path=error.path
    )


def message_for_clients(error: InputError) -> str:
    """Return the webhook's answer: the original's message, if there is one, then this project's."""
    return f"{error.original}; {error}" if isinstance(error, QuotaInputError) else str(error)


def original_of_amounts(quota: ElasticQuota) -> str:
    """Return the original's message for inconsistent amounts within one quota.

    Empty if the original does not refuse them. Raises InputError for weights that can't be parsed.
    """
    name, spec = quota.metadata.name, quota.spec
    weights = SHARED_WEIGHT.read(quota.metadata) or {}
    for what, amounts, dimension in (
        ("quota.Spec.Max", spec.max, "dimensions"),
        ("quota.Spec.Min", spec.min, "dimensions"),
        (f"quota.Annotation[{SHARED_WEIGHT.key}]", weights, "dimension"),
    ):
        if negative := _negative(amounts):
            return f"{name} {what}'s value < 0, in {dimension} :[{' '.join(negative)}]"
    for resource, least in spec.min.items():
        most = spec.max.get(resource)
        if most is None:
            return (
                f"resourceKey {resource} of quota {name} is included in min, "
                "which is not included in max"
            )
        if least > most:
            return f"resourceKey {resource} of quota {name} min {least} > max {most}"
    return ""


def _negative(amounts: ResourceList) -> list[str]:
    return [resource for resource, amount in amounts.items() if amount.nanos < 0]
