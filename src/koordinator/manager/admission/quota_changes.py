"""A change of a quota that admission let pass, as those who decide about others must know it."""

import msgspec
from msgspec.structs import replace

from koordinator.api.annotations.quota import GUARANTEED, NAMESPACES
from koordinator.api.elastic_quota import ElasticQuota, ElasticQuotaSpec
from koordinator.api.labels import (
    QUOTA_ALLOW_FORCE_UPDATE,
    QUOTA_IS_PARENT,
    QUOTA_IS_ROOT,
    QUOTA_PARENT,
    QUOTA_TREE_ID,
)
from koordinator.api.meta import ObjectMeta
from koordinator.manager.admission.request import AdmissionOperation

_LABELS = (QUOTA_PARENT, QUOTA_IS_PARENT, QUOTA_IS_ROOT, QUOTA_TREE_ID, QUOTA_ALLOW_FORCE_UPDATE)
_ANNOTATIONS = (NAMESPACES.key, GUARANTEED.key)


class QuotaChange(msgspec.Struct, frozen=True, kw_only=True):
    """What was admitted.  ``quota`` is as it will be stored; of a deletion, as it was.

    ``previous_version`` is the resourceVersion of what it replaces, empty of a creation.
    """

    operation: AdmissionOperation
    quota: ElasticQuota
    previous_version: str = ""

    @property
    def key(self) -> str:
        """Return ``namespace/name`` of the quota."""
        return self.quota.key

    def shortened(self) -> "QuotaChange":
        """Return the change with no more of the quota than decisions about others read."""
        meta = self.quota.metadata
        if self.operation is AdmissionOperation.DELETE:
            named = ObjectMeta(name=meta.name, namespace=meta.namespace)
            return replace(self, quota=ElasticQuota(metadata=named, spec=ElasticQuotaSpec()))
        kept = ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            labels={key: meta.labels[key] for key in _LABELS if key in meta.labels},
            annotations={k: meta.annotations[k] for k in _ANNOTATIONS if k in meta.annotations},
        )
        return replace(self, quota=replace(self.quota, metadata=kept))
