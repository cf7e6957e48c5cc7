"""Webhook configurations with the enabled hooks and their CA bundle.

An annotation holds the template: all hooks, including disabled ones, so that they can be enabled
later.  The chart sets it; if it is missing, as with the original's chart, the installed webhooks
become the template.  An installed webhook without CA bundle means that the configuration was
reinstalled, so the template is replaced.
Source: koordinator pkg/webhook/util/configuration/configuration.go.
"""

from base64 import b64encode
from collections.abc import Collection
from typing import Any, Final, TypeVar

import msgspec

from koordinator.api.control_plane import (
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
)
from koordinator.api.meta import JsonObject
from koordinator.foundation.decoders import decode_json

MUTATING_NAME: Final = "koordinator-mutating-webhook-configuration"
VALIDATING_NAME: Final = "koordinator-validating-webhook-configuration"
_TEMPLATE: Final = "template"

Configuration = MutatingWebhookConfiguration | ValidatingWebhookConfiguration
ConfigurationT = TypeVar("ConfigurationT", bound=Configuration)
_Entries = list[dict[str, Any]]


def configuration_patch(
    configuration: Configuration, paths: Collection[str], trusted: bytes
) -> JsonObject:
    """Return the merge patch that installs exactly the hooks of ``paths``; empty if unchanged.

    ``trusted`` is the CA bundle in PEM.  The patch applies only to this version of the
    configuration.
    """
    current = [dict(entry) for entry in configuration.webhooks]
    noted = _noted(configuration, current)
    template = [_trusting(entry, "") for entry in current] if noted is None else noted
    bundle = b64encode(trusted).decode()
    wanted = [_trusting(entry, bundle) for entry in template if _path(entry) in paths]
    changes: JsonObject = {}
    if noted is None:
        text = msgspec.json.encode(template, order="deterministic").decode()
        changes["annotations"] = {_TEMPLATE: text}
    elif _contains(current, wanted):
        return {}
    changes["resourceVersion"] = configuration.metadata.resource_version
    return {"metadata": changes, "webhooks": wanted}


def _noted(configuration: Configuration, current: _Entries) -> _Entries | None:
    """Return the template of the annotation; None if it is missing, outdated or invalid."""
    text = configuration.metadata.annotations.get(_TEMPLATE, "")
    is_reinstalled = any(not _client(entry).get("caBundle") for entry in current)
    if not text or is_reinstalled:
        return None
    try:
        return decode_json(text, _Entries)
    except msgspec.MsgspecError:
        return None  # edited by a user: the installed webhooks become the template


def _contains(stored: Any, wanted: Any) -> bool:
    """Return whether ``stored`` has all wanted fields; the API server adds defaults."""
    if isinstance(wanted, dict) and isinstance(stored, dict):
        return all(key in stored and _contains(stored[key], value) for key, value in wanted.items())
    if isinstance(wanted, list) and isinstance(stored, list):
        return len(stored) == len(wanted) and all(map(_contains, stored, wanted))
    return bool(stored == wanted)


def _trusting(entry: dict[str, Any], bundle: str) -> dict[str, Any]:
    client = {key: value for key, value in _client(entry).items() if key != "caBundle"}
    if bundle:
        client["caBundle"] = bundle
    return {**entry, "clientConfig": client}


def _client(entry: dict[str, Any]) -> dict[str, Any]:
    client: dict[str, Any] = entry.get("clientConfig") or {}
    return client


def _path(entry: dict[str, Any]) -> str:
    client = _client(entry)
    service = client.get("service") or {}
    path: str = (
        service.get("path") or "/" + str(client.get("url", "")).partition("//")[2].partition("/")[2]
    )
    return path
