"""Extensions of the API: groups that another server answers, and definitions of resources.

Source: k8s.io/kube-aggregator pkg/apis/apiregistration/v1/types.go; k8s.io/apiextensions-apiserver
pkg/apis/apiextensions/v1/types.go.
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


class CustomResourceDefinition(KubeObject, frozen=True, kw_only=True):
    """A kind that the API server stores; spec and status as they were written."""

    API_VERSION: ClassVar[str] = "apiextensions.k8s.io/v1"
    KIND: ClassVar[str] = "CustomResourceDefinition"
    PLURAL: ClassVar[str] = "customresourcedefinitions"
    NAMESPACED: ClassVar[bool] = False

    spec: UntypedObject = {}
    status: UntypedObject = {}


KINDS = (ApiService, CustomResourceDefinition)
