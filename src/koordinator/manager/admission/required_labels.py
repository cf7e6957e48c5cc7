"""Labels that somebody requires of every pod: the ConfigMap pod-enhanced-validator-config.

Source: koordinator pkg/webhook/pod/validating/pod_enhanced_validator.go.
"""

from typing import Final

from koordinator.api.codec import decode
from koordinator.api.config_map import ConfigMap
from koordinator.api.labels import POD_SKIP_ENHANCED_VALIDATION, is_true
from koordinator.api.meta import ApiStruct
from koordinator.api.pod import Pod
from koordinator.foundation.errors import InputError

CONFIG_NAME: Final = "pod-enhanced-validator-config"


class LabelRule(ApiStruct, frozen=True, kw_only=True):
    """Pods must have these labels, unless they are in one of these namespaces."""

    name: str = ""
    required_labels: tuple[str, ...] = ()
    namespace_whitelist: tuple[str, ...] = ()


def read_label_rules(config: ConfigMap | None) -> tuple[LabelRule, ...]:
    """Return the rules; none if they are off or can't be read."""
    if config is None or config.data.get("enable", "").strip().lower() != "true":
        return ()
    try:
        return decode(config.data.get("rules", "[]").encode(), tuple[LabelRule, ...])
    except InputError:
        return ()


def missing_labels(pod: Pod, rules: tuple[LabelRule, ...]) -> str:
    """Return what is missing by the first rule that is broken; empty if none is."""
    labels = pod.metadata.labels
    if is_true(labels, POD_SKIP_ENHANCED_VALIDATION):
        return ""
    for rule in rules:
        if pod.metadata.namespace in rule.namespace_whitelist:
            continue
        missing = [key for key in rule.required_labels if key not in labels]
        if len(missing) == 1:
            return f"required label '{missing[0]}' is missing"
        if missing:
            return f"required labels are missing: [{' '.join(missing)}]"
    return ""
