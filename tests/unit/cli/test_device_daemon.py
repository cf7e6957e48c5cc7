"""``koord device-daemon``: flags, variables, and a machine without cards."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from koordinator.cli.device_daemon import DeviceDaemonFlags
from koordinator.cli.main import app
from koordinator.foundation.errors import HostError, InputError

RUNNER = CliRunner()


def machine(folder: Path) -> list[str]:
    """Make a machine with a bus and nothing of interest on it; return its flags."""
    card = folder / "sys/bus/pci/devices/0000:00:00.0"
    card.mkdir(parents=True)
    (card / "vendor").write_text("0x8086\n")
    (card / "device").write_text("0x1234\n")
    return [f"--sys-root-dir={folder}/sys", f"--prints-output-file={folder}/infos/ic-device"]


def test_once_means_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By flag or variable; flags of the original that do nothing here are left out."""
    monkeypatch.setenv("KDD_ONESHOT", "true")
    flags = [*machine(tmp_path), "--no-timestamp", "-v=1"]
    done = RUNNER.invoke(app, ["device-daemon", *flags], catch_exceptions=False)

    assert done.exit_code == 0
    assert json.loads((tmp_path / "infos/ic-device").read_text()) == []


def test_a_failure_without_retry_is_reported(tmp_path: Path) -> None:
    """There is no bus below the given folder."""
    flags = [*machine(tmp_path), f"--sys-root-dir={tmp_path}/none", "--oneshot"]

    with pytest.raises(HostError, match="a tool of a vendor failed"):
        RUNNER.invoke(app, ["device-daemon", *flags], catch_exceptions=False)


@pytest.mark.parametrize(
    ("flag", "problem"),
    [
        ("--sleep-interval=0s", "--sleep-interval: must be more than 0, got '0s'"),
        ("--health-interval=soon", "--health-interval"),
        ("--prints-output-file=", "--prints-output-file: must be an absolute path, got ''"),
    ],
)
def test_a_wrong_flag_is_named(flag: str, problem: str) -> None:
    """With what is accepted."""
    with pytest.raises(InputError, match=problem):
        RUNNER.invoke(app, ["device-daemon", flag], catch_exceptions=False)


def test_the_machine_is_where_the_daemonset_of_the_original_has_it(tmp_path: Path) -> None:
    """Without a flag, the mounted path; otherwise the path of this process."""
    mounted, missing = tmp_path, tmp_path / "missing"

    assert DeviceDaemonFlags().host_root(mounted) == str(mounted)
    assert DeviceDaemonFlags().sys_root(mounted) == str(mounted)
    assert DeviceDaemonFlags().host_root(missing) == "/"
    assert DeviceDaemonFlags().sys_root(missing) == "/sys"
    stated = DeviceDaemonFlags(host_root_dir="/a", sys_root_dir="/b")
    assert (stated.host_root(mounted), stated.sys_root(mounted)) == ("/a", "/b")
