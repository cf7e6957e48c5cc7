"""Namespaces.

Source: k8s.io/api core/v1/types.go.
"""

from typing import ClassVar

from koordinator.api.meta import ApiStruct, KubeObject


class NamespaceStatus(ApiStruct, frozen=True, kw_only=True):
    """``phase`` is Active or Terminating."""

    phase: str = ""


class Namespace(KubeObject, frozen=True, kw_only=True):
    """A scope of names."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "Namespace"
    PLURAL: ClassVar[str] = "namespaces"
    NAMESPACED: ClassVar[bool] = False

    status: NamespaceStatus = NamespaceStatus()


KINDS = (Namespace,)
