"""What stands in the webhook configurations: the hooks that are on, and whom to trust.

Whoever installs the manager lists all hooks in an annotation.  Where they are listed as webhooks,
as by the original's chart, that list is put into the annotation, so that hooks can come back; an
entry that trusts nobody was installed anew, and then so is the list.
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
    """Return the merge patch that lists the hooks of these paths, and no others; empty if it does.

    ``trusted`` is PEM.  The patch applies to this version of the configuration only.
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
    elif _says(current, wanted):
        return {}
    changes["resourceVersion"] = configuration.metadata.resource_version
    return {"metadata": changes, "webhooks": wanted}


def _noted(configuration: Configuration, current: _Entries) -> _Entries | None:
    """Return the list of the annotation; None if there is none that counts."""
    text = configuration.metadata.annotations.get(_TEMPLATE, "")
    is_installed_anew = any(not _client(entry).get("caBundle") for entry in current)
    if not text or is_installed_anew:
        return None
    try:
        return decode_json(text, _Entries)
    except msgspec.MsgspecError:
        return None  # somebody edited it: what is listed now has to do


def _says(found: Any, wanted: Any) -> bool:
    """Return whether all that is wanted is there; the API server has filled in more."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return all(key in found and _says(found[key], value) for key, value in wanted.items())
    if isinstance(wanted, list) and isinstance(found, list):
        return len(found) == len(wanted) and all(map(_says, found, wanted))
    return bool(found == wanted)


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
