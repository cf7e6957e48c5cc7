"""``koord vgpu-monitor``: flags and variables."""

import pytest
from typer.testing import CliRunner

from koordinator.cli.main import app
from koordinator.foundation.errors import InputError

RUNNER = CliRunner()


def test_the_name_of_the_node_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By flag, or by the variable that the DaemonSet sets."""
    monkeypatch.delenv("NODE_NAME", raising=False)
    with pytest.raises(InputError, match=r"--node-name: is required.*NODE_NAME"):
        RUNNER.invoke(app, ["vgpu-monitor"], catch_exceptions=False)


@pytest.mark.parametrize(
    ("flag", "problem"),
    [
        ("-legacy-metrics=maybe", "--legacy-metrics: must be true or false, got 'maybe'"),
        (
            "--metrics-bind-address=9394x",
            "--metrics-bind-address: must be an address such as :8080, or 0, got '9394x'",
        ),
        ("--resync-interval=0s", "--resync-interval: must be more than 0, got '0s'"),
        ("--kubeconfig=/none", "/none"),
    ],
)
def test_a_wrong_flag_is_named(flag: str, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the accepted values; flags of Go programs are accepted, klog's are left out."""
    monkeypatch.setenv("NODE_NAME", "n1")
    args = ["vgpu-monitor", flag, "-v=4", "--logtostderr=true"]
    with pytest.raises(InputError, match=problem):
        RUNNER.invoke(app, args, catch_exceptions=False)
