"""Every annotation and label that the project reads, and texts that nobody in his senses writes."""

import importlib
import pkgutil
from types import ModuleType

from koordinator.api import annotations, labels
from koordinator.api.annotations.codec import AnnotationCodec

_DEEP = 5_000
TEXTS: tuple[str, ...] = (
    "[" * _DEEP + "]" * _DEEP,
    '{"a":' * _DEEP + "1" + "}" * _DEEP,
    '{"cpu":' + "[" * 150 + "]" * 150 + "}",
    '{"x":"' + "a" * 300_000 + '"}',
    "[" + "{}," * 3_000 + "{}]",
    "9" * 5_000,
    '{"cpu":"1e999999999","minor":1e999,"memory":"-9223372036854775808Ei"}',
    '{"gpu":[{"minor":-1,"resources":{"koordinator.sh/gpu-core":"9e18"}}]}',
    '{"cpuset":"0-999999999","numaNodeResources":[{"node":99999999}]}',
    '"\\ud800"',
    '["\\u0000/../..",null,{"":null}]',
    "[[[]]]",
    "NaN",
    "-",
    "\x00\x1b[2J",
    "default/" * 500,
    "99999999999999999999",
    "1e400",
    "-1",
)


def keys() -> list[str]:
    """Return the keys, read off the modules of ``api`` that define them."""
    modules = [labels, *_modules(annotations)]
    found: set[str] = set()
    for module in modules:
        for name, value in vars(module).items():
            if name.startswith("_"):
                continue
            if isinstance(value, AnnotationCodec):
                found |= {value.key, value.former_key}
            elif isinstance(value, str) and "/" in value and " " not in value:
                found.add(f"{value}x" if value.endswith("-") else value)
    return sorted(found - {""})


def _modules(package: ModuleType) -> list[ModuleType]:
    names = (module.name for module in pkgutil.iter_modules(package.__path__))
    return [importlib.import_module(f"{package.__name__}.{name}") for name in names]
