"""Observations of intents."""

from collections.abc import Iterable

from koordinator.domain.cgroups.files import CgroupFile
from koordinator.koordlet.intents import Intent, SetCgroup


def values(intents: Iterable[Intent], file: CgroupFile) -> dict[str, str]:
    """Return the wanted values of a file by folder."""
    return {i.folder: i.value for i in intents if isinstance(i, SetCgroup) and i.file is file}
