"""/configz: the configuration that a component runs with.

Source: k8s.io/component-base configz/configz.go.
"""

from collections.abc import Callable

import msgspec

from koordinator.api.codec import spelt_out
from koordinator.process.endpoints import Answer


def configz(configuration: Callable[[], msgspec.Struct]) -> Answer:
    """Return the page of a configuration: every field, spelt as in the file, defaults as well.

    Of bytes only the number is shown: they are keys and certificates.
    """
    return lambda _: {"componentconfig": spelt_out(configuration())}
