"""Pages of the node agent."""

from pathlib import Path
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from koordinator.cli.component.page_settings import PageSettings
from koordinator.cli.koordlet.pages import AgentPages
from koordinator.foundation.errors import InputError
from koordinator.process.loop_calls import LoopCalls


def unused() -> Any:
    pytest.fail("the number is refused before anything is asked")


@pytest.mark.parametrize("size", ["", "0", "-1", "2049", "1.5", "\u00b2", "9" * 5000])
def test_number_of_events_out_of_range_is_refused(size: str, tmp_path: Path) -> None:
    """Digits of other scripts and numbers of any length, too."""
    pages = AgentPages(
        parts=cast(Any, None),
        settings=PageSettings(
            plain=None,
            secure_port=0,
            bind_address="::1",
            certificate=tmp_path,
            key=tmp_path,
            always_allowed=(),
        ),
        external=CollectorRegistry(),
        loop_calls=LoopCalls(),
        audit=None,
        not_ready=unused,
        connect=unused,
    )

    with pytest.raises(InputError, match=r"must be 1\.\.2048, got"):
        pages.events({"size": size})
