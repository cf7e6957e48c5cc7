"""What stands in the webhook configurations: the hooks that are on, and whom to trust.

Whoever installs the manager lists all hooks; that list is kept in an annotation, so that hooks can
come back.  An entry that trusts nobody was installed anew, and then so is the list.
Source: koordinator pkg/webhook/util/configuration/configuration.go.
"""

from base64 import b64encode
from collections.abc import Collection
from typing import Any, Final, TypeVar

import msgspec

from koordinator.api.meta import JsonObject
from koordinator.api.webhook_configuration import (
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
)

MUTATING_NAME: Final = "koordinator-mutating-webhook-configuration"
VALIDATING_NAME: Final = "koordinator-validating-webhook-configuration"
_TEMPLATE: Final = "template"

Configuration = MutatingWebhookConfiguration | ValidatingWebhookConfiguration
ConfigurationT = TypeVar("ConfigurationT", bound=Configuration)
_Entries = list[dict[str, Any]]


def configuration_patch(
    configuration: Configuration, paths: Collection[str], trusted: bytes
) -> JsonObject:
    """Return the merge patch that lists the hooks of these paths, and no others; empty if it does.

    ``trusted`` is PEM.  The patch applies to this version of the configuration only.
    """
    current = [dict(entry) for entry in configuration.webhooks]
    template = _template(configuration, current)
    bundle = b64encode(trusted).decode()
    wanted = [_trusting(entry, bundle) for entry in template if _path(entry) in paths]
    text = msgspec.json.encode(template, order="deterministic").decode()
    meta = configuration.metadata
    if wanted == current and meta.annotations.get(_TEMPLATE) == text:
        return {}
    return {
        "metadata": {
            "annotations": {_TEMPLATE: text},
            "resourceVersion": meta.resource_version,
        },
        "webhooks": wanted,
    }


def _template(configuration: Configuration, current: _Entries) -> _Entries:
    text = configuration.metadata.annotations.get(_TEMPLATE, "")
    is_installed_anew = any(not _client(entry).get("caBundle") for entry in current)
    if text and not is_installed_anew:
        try:
            return msgspec.json.decode(text, type=_Entries)
        except msgspec.MsgspecError:
            pass  # somebody edited it: what is listed now has to do
    return [_trusting(entry, "") for entry in current]


def _trusting(entry: dict[str, Any], bundle: str) -> dict[str, Any]:
    client = {key: value for key, value in _client(entry).items() if key != "caBundle"}
    if bundle:
        client["caBundle"] = bundle
    return {**entry, "clientConfig": client}


def _client(entry: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = entry.get("clientConfig") or {}
    return found


def _path(entry: dict[str, Any]) -> str:
    client = _client(entry)
    service = client.get("service") or {}
    path: str = (
        service.get("path") or "/" + str(client.get("url", "")).partition("//")[2].partition("/")[2]
    )
    return path
