"""Base of all structs of the configuration file.

Unlike API objects they forbid unknown fields: a misspelt setting must not be silently ignored.
Source: k8s.io/kube-scheduler config/v1, register.go.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from koordinator.api.kubescheduler.gates import FeatureGates

API_VERSION = "kubescheduler.config.k8s.io/v1"

_MAX_INT32 = 2**31 - 1

Count = Annotated[int, Meta(ge=0, le=_MAX_INT32)]
PositiveCount = Annotated[int, Meta(ge=1, le=_MAX_INT32)]
Seconds = Annotated[int, Meta(ge=0)]
PositiveSeconds = Annotated[int, Meta(ge=1)]
ConfigPercent = Annotated[int, Meta(ge=0, le=100)]
PositivePercent = Annotated[int, Meta(ge=1, le=100)]
Weight = Annotated[int, Meta(ge=1, le=100)]


class ConfigStruct(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """Part of the configuration file."""


class PluginArgs(ConfigStruct, frozen=True, kw_only=True):
    """The arguments of one plugin; a subclass is called like the ``kind`` in the file."""

    api_version: str = API_VERSION
    kind: str = ""

    def validate(self) -> None:
        """Check what types don't say.

        Raises InputError whose path starts at the arguments.
        """

    def check_gates(self, gates: FeatureGates) -> None:
        """Check that no argument is set that has no effect with these gates.

        Raises InputError whose path starts at the arguments.
        """


def fill(struct: msgspec.Struct, **defaults: Any) -> None:
    """Set fields of a frozen struct; for ``__post_init__`` alone."""
    for name, value in defaults.items():
        msgspec.structs.force_setattr(struct, name, value)
