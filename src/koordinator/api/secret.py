"""Secrets.

Source: k8s.io/api core/v1/types.go.
"""

from typing import ClassVar

from koordinator.api.meta import KubeObject


class Secret(KubeObject, frozen=True, kw_only=True):
    """Named bytes."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "Secret"
    PLURAL: ClassVar[str] = "secrets"

    data: dict[str, str] = {}  # base64
    type: str = ""
    immutable: bool | None = None


KINDS = (Secret,)
