"""Syntax of names, label keys and label values.

Texts recur by the hundred thousand, so the answers for labels are remembered.
Source: k8s.io/apimachinery pkg/util/validation/validation.go.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TypeVar

from koordinator.foundation.errors import InputError

Item = TypeVar("Item")

_MAX_LABEL = 63
_MAX_SUBDOMAIN = 253
_KEPT = 1 << 12  # answers: tenants may make up as many labels as they like
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_WORD = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")

_DNS_LABEL_RULE = "at most 63 of a-z, 0-9 and '-', not '-' at either end"
_SUBDOMAIN_RULE = (
    "at most 253 of a-z, 0-9, '-' and '.', a letter or digit at both ends of each part"
)
_LABEL_KEY_RULE = (
    "at most 63 of A-Z, a-z, 0-9, '-', '_' and '.', a letter or digit at both ends, "
    "optionally after a DNS subdomain and '/'"
)
_LABEL_VALUE_RULE = (
    "at most 63 of A-Z, a-z, 0-9, '-', '_' and '.', a letter or digit at both ends, or nothing"
)


def invalid_value(path: str, value: object, accepted: str) -> InputError:
    """Return the error of a field whose value is not accepted."""
    return InputError(f"must be {accepted}, got {value!r}", path=path)


def join_path(path: str, key: str) -> str:
    """Return the path of a key; one that has dots or slashes stands in brackets."""
    if "." in key or "/" in key or not key:
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def is_dns_label(text: str) -> bool:
    """Return whether the text can name a namespace or a container."""
    return len(text) <= _MAX_LABEL and _DNS_LABEL.fullmatch(text) is not None


def is_dns_subdomain(text: str) -> bool:
    """Return whether the text can name most objects."""
    return len(text) <= _MAX_SUBDOMAIN and _SUBDOMAIN.fullmatch(text) is not None


@lru_cache(maxsize=_KEPT)
def is_label_key(text: str) -> bool:
    """Return whether the text can be the key of a label, a taint or a resource."""
    prefix, slash, word = text.rpartition("/")
    if len(word) > _MAX_LABEL or not _WORD.fullmatch(word):
        return False
    return is_dns_subdomain(prefix) if slash else True


@lru_cache(maxsize=_KEPT)
def is_label_value(text: str) -> bool:
    """Return whether the text can be the value of a label or of a taint."""
    return not text or (len(text) <= _MAX_LABEL and _WORD.fullmatch(text) is not None)


def check_dns_label(text: str, path: str) -> None:
    """Raise InputError unless the text is a DNS label."""
    if not is_dns_label(text):
        raise invalid_value(path, text, _DNS_LABEL_RULE)


def check_dns_subdomain(text: str, path: str) -> None:
    """Raise InputError unless the text is a DNS subdomain."""
    if not is_dns_subdomain(text):
        raise invalid_value(path, text, _SUBDOMAIN_RULE)


def check_label_key(text: str, path: str) -> None:
    """Raise InputError unless the text can be the key of a label."""
    if not is_label_key(text):
        raise invalid_value(path, text, _LABEL_KEY_RULE)


def check_label_value(text: str, path: str) -> None:
    """Raise InputError unless the text can be the value of a label."""
    if not is_label_value(text):
        raise invalid_value(path, text, _LABEL_VALUE_RULE)


def check_labels(labels: Mapping[str, str], path: str) -> None:
    """Raise InputError for an invalid label key or value."""
    for key, value in labels.items():
        if not is_label_key(key):
            raise invalid_value(path, key, _LABEL_KEY_RULE)
        if not is_label_value(value):
            raise invalid_value(f"{path}[{key}]", value, _LABEL_VALUE_RULE)


def check_annotation_keys(annotations: Mapping[str, str], path: str) -> None:
    """Raise InputError for an invalid annotation key: as for labels, in any case."""
    for key in annotations:
        if not is_label_key(key) and not is_label_key(key.lower()):
            raise invalid_value(path, key, _LABEL_KEY_RULE)


def numbered(items: Iterable[Item], path: str) -> Iterator[tuple[str, Item]]:
    """Yield the items of a list with their paths."""
    for index, item in enumerate(items):
        yield f"{path}[{index}]", item


def check_unique(values: Iterable[object], path: str, field: str = "") -> None:
    """Raise InputError for a value that occurs twice; ``field`` is its path in the item."""
    seen: set[object] = set()
    for place, value in numbered(values, path):
        if value in seen:
            raise InputError(f"must be unique, got {value!r} again", path=f"{place}{field}")
        seen.add(value)


def check_one_of(text: str, accepted: Collection[str], path: str) -> None:
    """Raise InputError unless the text is one of the accepted ones."""
    if text not in accepted:
        raise invalid_value(path, text, " or ".join(choice or "empty" for choice in accepted))
