"""The compatibility level: the release of Kubernetes whose decisions are reproduced.

Defaults of feature gates, formulas, plugins and messages follow from it.
Source: k8s.io/component-base compatibility (``--emulated-version``), k8s.io/apimachinery
pkg/util/version; the answer of an API server to ``/version``.
"""

import re
from typing import Final, Self

from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass

_VERSION: Final = re.compile(
    r"v?1\.([0-9]{1,3})(?:\+|\.[0-9]{1,5}(?:[-+.][0-9A-Za-z.+-]{0,100})?)?"
)


@dataclass(frozen=True, slots=True, order=True)
class KubeVersion:
    """A minor release of Kubernetes 1."""

    minor: int

    def __str__(self) -> str:
        """Return it as people write it, such as 1.37."""
        return f"1.{self.minor}"

    @classmethod
    def parse(cls, text: str, source: str = "") -> Self:
        """Return the minor release of ``1.37``, ``v1.37.2`` or ``1.37+``.

        Raises InputError, naming ``source``, for anything else.
        """
        matched = _VERSION.fullmatch(text.strip())
        if matched is None:
            raise InputError(
                f"must be a version of Kubernetes such as {NEWEST}, got {text!r}", source=source
            )
        return cls(int(matched[1]))

    def served(self) -> "KubeVersion":
        """Return the release itself, or the nearest one that is served."""
        return min(max(self, OLDEST), NEWEST)


OLDEST: Final = KubeVersion(33)
NEWEST: Final = KubeVersion(37)
SERVED: Final = tuple(KubeVersion(minor) for minor in range(OLDEST.minor, NEWEST.minor + 1))
#: Default without a cluster or a flag.
DEFAULT_LEVEL: Final = KubeVersion(37)

V1_35: Final = KubeVersion(35)
V1_36: Final = KubeVersion(36)
V1_37: Final = KubeVersion(37)


def emulated_level(flag: str) -> KubeVersion | None:
    """Parse ``--emulated-version``, such as ``1.36`` or ``kube=1.36``; None if empty.

    Raises InputError for another component, for what is no version, and for one that is not
    served.
    """
    source = "--emulated-version"
    level = None
    for part in filter(None, (each.strip() for each in flag.split(","))):
        component, equals, version = part.rpartition("=")
        if equals and component != "kube":
            raise InputError(f"component not registered: {component}", source=source)
        level = stated_level(version, source)
    return level


def stated_level(text: str, source: str = "--kube-version") -> KubeVersion:
    """Return the level that a user names.

    Raises InputError, naming ``source``, for what is no version, and for one that is not served.
    """
    level = KubeVersion.parse(text, source)
    if level != level.served():
        raise InputError(
            f"emulation version {level} is not between [{OLDEST}, {NEWEST}]", source=source
        )
    return level
