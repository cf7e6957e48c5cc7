"""ResourceQuota: limits on the requests of a namespace.

Source: k8s.io/api core/v1/types.go.
"""

from typing import ClassVar

from koordinator.api.core import ResourceList
from koordinator.api.meta import ApiStruct, KubeObject


class ResourceQuotaSpec(ApiStruct, frozen=True, kw_only=True):
    """``hard`` has names such as ``cpu``, ``requests.cpu`` and ``count/jobs.batch``."""

    hard: ResourceList = {}


class ResourceQuota(KubeObject, frozen=True, kw_only=True):
    """Limit of a namespace, with the fields that queues read."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "ResourceQuota"
    PLURAL: ClassVar[str] = "resourcequotas"

    spec: ResourceQuotaSpec = ResourceQuotaSpec()


KINDS = (ResourceQuota,)
