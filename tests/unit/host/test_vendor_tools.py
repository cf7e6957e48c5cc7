"""Programs of vendors are run with bounds."""

from pathlib import Path

import pytest

from koordinator.host.linux.programs import LinuxVendorTools
from koordinator.host.port import ToolError


def tool(folder: Path, script: str) -> str:
    """Write a program and return its path."""
    path = folder / "tool"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_output_of_a_tool_is_returned(tmp_path: Path) -> None:
    """The result has standard output and error; no shell reads the arguments."""
    name = tool(tmp_path, 'echo "$1"; echo more >&2')

    assert LinuxVendorTools("/").ask(name, "a; $(b)") == "a; $(b)\nmore\n"


def test_failing_tool_reports_exit_code_and_output(tmp_path: Path) -> None:
    """The error contains the output of the tool."""
    name = tool(tmp_path, "echo Command or option is not found; exit 3")

    with pytest.raises(ToolError, match="exit code 3: Command or option") as failure:
        LinuxVendorTools("/").ask(name, "info")
    assert failure.value.output == "Command or option is not found\n"


def test_missing_or_hanging_tool_raises(tmp_path: Path) -> None:
    """A broken card may make a tool hang."""
    with pytest.raises(ToolError, match="No such file"):
        LinuxVendorTools("/").ask(str(tmp_path / "none"))
    with pytest.raises(ToolError, match=r"no answer in 0.1 s"):
        LinuxVendorTools("/", timeout_s=0.1).ask(tool(tmp_path, "exec sleep 60"))


def test_device_nodes_are_counted_as_numbers(tmp_path: Path) -> None:
    """Others that only begin alike are none; a missing folder has none."""
    for name in ("davinci10", "davinci2", "davinci_manager", "xdavinci1"):
        (tmp_path / name).touch()

    assert LinuxVendorTools("/", str(tmp_path)).device_numbers("davinci") == [2, 10]
    assert LinuxVendorTools("/", "/none").device_numbers("davinci") == ()
