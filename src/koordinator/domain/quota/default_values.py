"""What admission fills in when a quota is created.

Source: koordinator pkg/webhook/elasticquota/quota_topology.go, ``fillQuotaDefaultInformation``.
"""

from msgspec.structs import replace

from koordinator.api.annotations.quota import SHARED_WEIGHT
from koordinator.api.codec import subject_of
from koordinator.api.elastic_quota import ROOT_QUOTA, ElasticQuota
from koordinator.api.labels import QUOTA_PARENT, QUOTA_TREE_ID
from koordinator.api.syntax import refusal
from koordinator.domain.quota.refusal import refused_as
from koordinator.domain.quota.topology import QuotaTopology
from koordinator.foundation.errors import InputError


def with_quota_defaults(quota: ElasticQuota, topology: QuotaTopology) -> ElasticQuota:
    """Return the quota with parent, tree and weights; the very same if nothing is missing.

    The parent is the root, the tree that of the parent, and the weights are of exactly the
    resources of ``spec.max``, where they are as large as that.
    Raises InputError if the parent isn't known, or the weights can't be read.
    """
    if quota.metadata.name == ROOT_QUOTA:
        return quota
    try:
        labels = dict(quota.metadata.labels)
        labels[QUOTA_PARENT] = quota.parent
        if not quota.tree_id and quota.parent != ROOT_QUOTA:
            parent = topology.get(quota.parent)
            if parent is None:
                path = f"metadata.labels[{QUOTA_PARENT}]"
                error = refusal(path, quota.parent, "the name of an existing quota")
                original = f"fill quota {quota.metadata.name} failed, parent not exist"
                raise refused_as(original, error)
            if parent.tree_id:
                labels[QUOTA_TREE_ID] = parent.tree_id
        weights = SHARED_WEIGHT.read(quota.metadata)
    except InputError as error:
        raise error.within(subject=subject_of(quota)) from None
    annotations = dict(quota.metadata.annotations)
    if weights is None or weights.keys() != quota.spec.max.keys():
        known = weights or {}
        wanted = {name: known.get(name, most) for name, most in quota.spec.max.items()}
        annotations |= SHARED_WEIGHT.entry(wanted)
    if (labels, annotations) == (quota.metadata.labels, quota.metadata.annotations):
        return quota
    meta = replace(quota.metadata, labels=labels, annotations=annotations)
    return replace(quota, metadata=meta)
