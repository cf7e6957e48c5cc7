"""Validation of single elastic quotas and quota profiles.

The manager, which knows the tree, validates the place of a quota in it.
Source: koordinator pkg/webhook/elasticquota/quota_topology_check.go, ``validateQuotaSelfItem``.
"""

from koordinator.api.annotations.quota import SHARED_WEIGHT
from koordinator.api.core import ResourceList
from koordinator.api.elastic_quota import ElasticQuota, ElasticQuotaProfile
from koordinator.api.selector_validation import check_label_selector
from koordinator.api.syntax import check_dns_subdomain, check_labels, invalid_value
from koordinator.foundation.errors import InputError


def validate_elastic_quota(quota: ElasticQuota) -> None:
    """Validate a quota without its place in the tree.

    Raises InputError if an amount is negative, or a minimum above the maximum or without one.
    """
    spec = quota.spec
    _check_not_negative(spec.max, "spec.max")
    _check_not_negative(spec.min, "spec.min")
    _check_not_negative(SHARED_WEIGHT.read(quota.metadata) or {}, SHARED_WEIGHT.path)
    for resource, least in spec.min.items():
        most = spec.max.get(resource)
        if most is None:
            raise InputError(
                f"must be set in spec.max too, got a minimum of {least} without a maximum",
                path=f"spec.min[{resource}]",
            )
        if least > most:
            raise invalid_value(
                f"spec.min[{resource}]", str(least), f"at most {most}, as in spec.max"
            )


def validate_elastic_quota_profile(profile: ElasticQuotaProfile) -> None:
    """Raise InputError for a selector, labels or a name that the quota could not be made of."""
    check_dns_subdomain(profile.spec.quota_name, "spec.quotaName")
    check_label_selector(profile.spec.node_selector, "spec.nodeSelector")
    check_labels(profile.spec.quota_labels, "spec.quotaLabels")


def _check_not_negative(amounts: ResourceList, path: str) -> None:
    for resource, amount in amounts.items():
        if amount.nanos < 0:
            raise invalid_value(f"{path}[{resource}]", str(amount), "an amount of at least 0")
