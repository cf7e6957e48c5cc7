"""Webhook configurations of the API server.

Entries are not typed: they belong to their installer, and are written as a whole.
Source: k8s.io/api admissionregistration/v1/types.go.
"""

from typing import ClassVar

from koordinator.api.crd import UntypedObject
from koordinator.api.meta import KubeObject


class MutatingWebhookConfiguration(KubeObject, frozen=True, kw_only=True):
    """Webhooks that may change what is stored."""

    API_VERSION: ClassVar[str] = "admissionregistration.k8s.io/v1"
    KIND: ClassVar[str] = "MutatingWebhookConfiguration"
    PLURAL: ClassVar[str] = "mutatingwebhookconfigurations"
    NAMESPACED: ClassVar[bool] = False

    webhooks: tuple[UntypedObject, ...] = ()


class ValidatingWebhookConfiguration(KubeObject, frozen=True, kw_only=True):
    """Webhooks that may only refuse."""

    API_VERSION: ClassVar[str] = "admissionregistration.k8s.io/v1"
    KIND: ClassVar[str] = "ValidatingWebhookConfiguration"
    PLURAL: ClassVar[str] = "validatingwebhookconfigurations"
    NAMESPACED: ClassVar[bool] = False

    webhooks: tuple[UntypedObject, ...] = ()


KINDS = (MutatingWebhookConfiguration, ValidatingWebhookConfiguration)
