"""Groups of the API that another server answers.

Source: k8s.io/kube-aggregator pkg/apis/apiregistration/v1/types.go.
"""

from typing import ClassVar

from koordinator.api.crd import UntypedObject
from koordinator.api.meta import KubeObject


class ApiService(KubeObject, frozen=True, kw_only=True):
    """A version of a group, and the Service that answers for it; its spec as it was written."""

    API_VERSION: ClassVar[str] = "apiregistration.k8s.io/v1"
    KIND: ClassVar[str] = "APIService"
    PLURAL: ClassVar[str] = "apiservices"
    NAMESPACED: ClassVar[bool] = False

    spec: UntypedObject = {}


KINDS = (ApiService,)
