"""Names replaced in recordings, the same one always by the same, whatever they are names of.

Kept is what has a meaning for schedulers: numbers, amounts, times, truth values, the vocabulary of
Kubernetes (which begins with a capital letter: NoSchedule, Exists, …), keys and enumerations under
the domains of Kubernetes and Koordinator, profile names.  Every other text is replaced: names,
values and keys of labels, images.  Dropped are annotations under other domains, and all messages.
"""

import re
from hashlib import blake2b
from typing import Any

import msgspec

from koordinator.api.meta import JsonObject

_WELL_KNOWN = re.compile(
    r"(?:[a-z0-9-]+\.)*(?:kubernetes\.io|k8s\.io|koordinator\.sh)/[A-Za-z0-9._/-]+"
)
_AMOUNT = re.compile(
    r"[+-]?[0-9.]+(?:[eE][+-]?[0-9]+|[numkMGTPE]i?)?|(?:[0-9.]+(?:ns|us|µs|ms|[smh]))+"
)
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(?:Z|[+-][0-9:]+)")
_VOCABULARY = re.compile(r"[A-Z][A-Za-z]*")
_TOKEN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_KEPT = frozenset(
    (
        *("true", "false", "default", "kube-system", "default-scheduler"),
        *("metadata.name", "metadata.namespace"),
        *("koord-prod", "koord-mid", "koord-batch", "koord-free"),
        *("system-cluster-critical", "system-node-critical"),
        *("koordinator-root-quota", "koordinator-default-quota", "koordinator-system-quota"),
        *("once-satisfied", "only-waiting", "waiting-and-running"),
        *("cpu", "memory", "pods", "ephemeral-storage", "gpu", "rdma", "fpga", "xpu"),
        *("node", "pod", "zone", "prod", "mid", "batch", "free"),
    )
)
#: Fields whose text is kept: identities without a meaning to people, kinds, profiles, resources.
_KEPT_FIELDS = frozenset(
    (
        *("apiVersion", "kind", "uid", "resourceVersion", "schedulerName"),
        *("resource", "resourceName", "type", "phase", "operator", "effect", "mode"),
        *("policy", "protocol"),
    )
)
_DROPPED_FIELDS = frozenset(("message", "generateName", "hostIP", "containerID"))
_LABELS = frozenset(("labels", "matchLabels", "nodeSelector", "selector"))
_EXPRESSIONS = frozenset(("matchLabels", "matchExpressions"))  # a selector that is no plain map
_KEYS = frozenset(("key", "topologyKey"))
_DIGITS = 12


class Anonymiser:
    """Replaces names by a keyed hash: who has the file, but not the secret, can't try names."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._known: dict[str, str] = {}

    def manifest(self, manifest: JsonObject) -> JsonObject:
        """Return an object without names."""
        whole: JsonObject = self._tree(manifest, "")
        return whole

    def name(self, name: str) -> str:
        """Return what stands for a name, or for each of the names in a text."""
        if self._is_kept(name):
            return name
        return _TOKEN.sub(lambda found: self._token(found[0]), name)

    def _token(self, token: str) -> str:
        if self._is_kept(token):
            return token
        known = self._known.get(token)
        if known is None:
            digest = blake2b(token.encode(), key=self._secret, digest_size=_DIGITS // 2)
            known = self._known[token] = f"x{digest.hexdigest()}"
        return known

    def _tree(self, value: Any, field: str) -> Any:
        if isinstance(value, dict):
            if field == "annotations":
                return {
                    key: self._annotation(text)
                    for key, text in value.items()
                    if _WELL_KNOWN.fullmatch(key)
                }
            names = field in _LABELS and not _EXPRESSIONS.intersection(value)
            return {
                self._key(key) if names else key: self._tree(item, "" if names else key)
                for key, item in value.items()
                if names or key not in _DROPPED_FIELDS
            }
        if isinstance(value, list):
            return [self._tree(item, field) for item in value]
        if isinstance(value, str):
            if field in _KEPT_FIELDS:
                return value
            return self._key(value) if field in _KEYS else self.name(value)
        return value

    def _key(self, key: str) -> str:
        return key if _WELL_KNOWN.fullmatch(key) else self.name(key)

    def _annotation(self, text: str) -> str:
        """Return the text of an annotation; JSON stays JSON."""
        if text[:1] in ("{", "["):
            try:
                tree = msgspec.json.decode(text)
            except msgspec.DecodeError:
                return self.name(text)
            return msgspec.json.encode(self._tree(tree, "")).decode()
        return self.name(text)

    @staticmethod
    def _is_kept(text: str) -> bool:
        return (
            text in _KEPT
            or bool(_AMOUNT.fullmatch(text))
            or bool(_TIME.fullmatch(text))
            or bool(_VOCABULARY.fullmatch(text))
        )
