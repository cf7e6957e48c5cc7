"""Checks of labels and annotations: required labels of pods, annotations that no component reads.

The original admits an annotation that is nested too deep or too long. Here each component ignores
it, so admission rejects it.
Source: koordinator pkg/webhook/pod/validating/pod_enhanced_validator.go.
"""

from typing import Final

from koordinator.api.annotations.codec import annotation_path
from koordinator.api.codec import decode
from koordinator.api.config_map import ConfigMap
from koordinator.api.labels import POD_SKIP_ENHANCED_VALIDATION, is_true
from koordinator.api.meta import ApiStruct, KubeObject
from koordinator.api.nesting import check_annotation
from koordinator.api.pod import Pod
from koordinator.foundation.errors import InputError

_DOMAIN = "koordinator.sh/"


def check_annotations(new: KubeObject, old: KubeObject | None) -> None:
    """Raise InputError for a new ``koordinator.sh`` annotation that no component would read.

    An annotation that the update does not change is not checked.
    """
    before = old.metadata.annotations if old is not None else {}
    for key, text in new.metadata.annotations.items():
        if _DOMAIN in key and before.get(key) != text:
            try:
                check_annotation(text.encode())
            except InputError as error:
                raise error.within(path=annotation_path(key)) from None


CONFIG_NAME: Final = "pod-enhanced-validator-config"


class LabelRule(ApiStruct, frozen=True, kw_only=True):
    """Labels that pods must have, except in the whitelisted namespaces."""

    name: str = ""
    required_labels: tuple[str, ...] = ()
    namespace_whitelist: tuple[str, ...] = ()


def read_label_rules(config: ConfigMap | None) -> tuple[LabelRule, ...]:
    """Return the rules; empty if they are disabled or can't be parsed."""
    if config is None or config.data.get("enable", "").strip().lower() != "true":
        return ()
    try:
        return decode(config.data.get("rules", "[]").encode(), tuple[LabelRule, ...])
    except InputError:
        return ()


def missing_labels(pod: Pod, rules: tuple[LabelRule, ...]) -> str:
    """Return a message with the labels that the first violated rule requires; empty if none is."""
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
