"""Configuration kept in the cluster.

Source: k8s.io/api core/v1/types.go.
"""

from typing import ClassVar

from koordinator.api.meta import KubeObject


class ConfigMap(KubeObject, frozen=True, kw_only=True):
    """Named texts."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "ConfigMap"
    PLURAL: ClassVar[str] = "configmaps"

    data: dict[str, str] = {}
    immutable: bool | None = None


KINDS = (ConfigMap,)
