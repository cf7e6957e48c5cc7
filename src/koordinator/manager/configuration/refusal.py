"""Why a configuration is refused, in the form that consoles of the original read.

Source: koordinator pkg/webhook/util/err/json_error.go, pkg/webhook/cm/plugins/sloconfig/result.go.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from koordinator.foundation.errors import InputError

PARSE: Final = "ParseConfigFail"
INVALID: Final = "ConfigParamInvalid"
OVERLAP: Final = "NodeStrategiesOverlap"
NODE_CONFLICT: Final = "ExistNodeConfict"  # so spelt on the wire

Message = str | Mapping[str, str | Sequence[str]]


def refused(reason: str, message: Message) -> InputError:
    """Return the error whose text is ``___{"reason": …, "message": …}___``."""
    text = msgspec.json.encode({"reason": reason, "message": message}).decode()
    return InputError(f"___{text}___")
