"""Services: which pods belong together.

Source: k8s.io/api core/v1/types.go.
"""

from typing import ClassVar

from koordinator.api.meta import ApiStruct, KubeObject


class ServiceSpec(ApiStruct, frozen=True, kw_only=True):
    """An empty selector selects no pods."""

    selector: dict[str, str] = {}


class Service(KubeObject, frozen=True, kw_only=True):
    """Pods behind one name."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "Service"
    PLURAL: ClassVar[str] = "services"

    spec: ServiceSpec = ServiceSpec()


KINDS = (Service,)
