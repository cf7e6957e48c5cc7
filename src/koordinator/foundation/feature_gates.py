"""The text of a flag ``--feature-gates``, as components of Kubernetes take it.

Source: k8s.io/component-base featuregate/feature_gate.go ``Set``, ``setUnsetAlphaGates`` and
``setUnsetBetaGates``.
"""

from collections.abc import Collection
from typing import Final

from koordinator.foundation.errors import InputError

SOURCE: Final = "--feature-gates"
ALL_ALPHA: Final = "AllAlpha"
ALL_BETA: Final = "AllBeta"
_COMPONENT: Final = "kube:"  # in front of a gate: the component that has it, the only one there is

_VALUES: Final = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}


def parse_feature_gates(
    text: str,
    *,
    alpha: Collection[str] = (),
    beta: Collection[str] = (),
    source: str = SOURCE,
) -> dict[str, bool]:
    """Parse ``A=true,B=false``; the last value of a gate wins.

    AllAlpha and AllBeta set the gates of ``alpha`` and ``beta`` that are not listed.
    Raises InputError for a value that is neither true nor false; ``source`` is the flag.
    """
    settings: dict[str, bool] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, value = (each.strip() for each in part.partition("="))
        is_on = _VALUES.get(value.lower())
        if is_on is None:
            raise InputError(f"must be {name}=true or {name}=false, got {part!r}", source=source)
        settings[name.removeprefix(_COMPONENT)] = is_on
    for every, gates in ((ALL_ALPHA, alpha), (ALL_BETA, beta)):
        if every in settings:
            settings = {**dict.fromkeys(gates, settings.pop(every)), **settings}
    return settings
