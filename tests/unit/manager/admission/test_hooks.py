"""Webhook configurations: enabled hooks and CA bundles."""

import json
from base64 import b64encode
from typing import Any

from koordinator.api.codec import apply_merge_patch, decode, to_manifest
from koordinator.api.control_plane import MutatingWebhookConfiguration
from koordinator.manager.admission.hooks import configuration_patch

POD, QUOTA = "/mutate-pod", "/mutate-quota"


def entry(path: str) -> dict[str, Any]:
    """Return an entry as the chart installs it."""
    service = {"name": "s", "namespace": "n", "path": path}
    return {"name": path.strip("/"), "clientConfig": {"service": service}, "sideEffects": "None"}


def installed(*paths: str) -> MutatingWebhookConfiguration:
    """Return a configuration as installed, before the manager has updated it."""
    listed = [entry(path) for path in paths]
    return decode({"metadata": {"name": "c"}, "webhooks": listed}, MutatingWebhookConfiguration)


def after(
    configuration: MutatingWebhookConfiguration, paths: set[str], trusted: bytes = b"PEM"
) -> MutatingWebhookConfiguration:
    """Return the configuration with the patch made to it; a second look finds nothing to do."""
    patch = configuration_patch(configuration, paths, trusted)
    new = decode(apply_merge_patch(to_manifest(configuration), patch), MutatingWebhookConfiguration)
    assert configuration_patch(new, paths, trusted) == {}
    return new


def listed(configuration: MutatingWebhookConfiguration) -> dict[str, str]:
    """Return the bundles by name of the entry."""
    return {each["name"]: each["clientConfig"]["caBundle"] for each in configuration.webhooks}


def test_hooks_that_are_on_trust_our_certificate() -> None:
    """The others are taken out, and come back when they are on."""
    bundle = b64encode(b"PEM").decode()
    some = after(installed(POD, QUOTA), {POD})
    assert listed(some) == {"mutate-pod": bundle}

    assert listed(after(some, {POD, QUOTA})) == {"mutate-pod": bundle, "mutate-quota": bundle}


def test_hooks_are_taken_from_the_annotation() -> None:
    """The annotation is the installer's, and stays unchanged."""
    text = json.dumps([entry(POD), entry(QUOTA)], indent=1)
    meta = {"name": "c", "annotations": {"template": text}}
    result = after(decode({"metadata": meta}, MutatingWebhookConfiguration), {POD})

    assert listed(result).keys() == {"mutate-pod"}
    assert result.metadata.annotations["template"] == text
    defaulted = {
        **to_manifest(result),
        "webhooks": [{**result.webhooks[0], "matchPolicy": "Exact"}],
    }
    known = decode(defaulted, MutatingWebhookConfiguration)
    assert configuration_patch(known, {POD}, b"PEM") == {}


def test_a_new_certificate_is_made_known() -> None:
    """In every entry; nothing else of it changes."""
    old = after(installed(POD), {POD})
    (webhook,) = after(old, {POD}, b"NEW").webhooks

    assert webhook["clientConfig"].pop("caBundle") == b64encode(b"NEW").decode()
    assert webhook == entry(POD)


def test_reinstalled_webhook_configuration_is_used() -> None:
    """An upgrade may bring other entries than the ones that are remembered."""
    old = after(installed(POD), {POD, QUOTA})
    upgraded = decode(
        {**to_manifest(old), "webhooks": [entry(QUOTA)]}, MutatingWebhookConfiguration
    )

    assert listed(after(upgraded, {POD, QUOTA})).keys() == {"mutate-quota"}


def test_webhook_without_hooks_is_not_called() -> None:
    """All gates are off."""
    assert after(installed(POD, QUOTA), set()).webhooks == ()
