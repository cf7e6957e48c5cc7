"""``koord yarn-operator`` and ``koord yarn-copilot``: what they take, and what they refuse."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from koordinator.cli.main import app
from koordinator.foundation.errors import InputError

RUNNER = CliRunner()
SITE = (
    "<configuration><property><name>yarn.resourcemanager.hostname</name>"
    "<value>rm.example</value></property></configuration>"
)


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """Make a folder as HADOOP_CONF_DIR names it."""
    (tmp_path / "yarn-site.xml").write_text(SITE)
    return tmp_path


def refusal(*args: str) -> str:
    """Return why a command does not start."""
    with pytest.raises(InputError) as caught:
        RUNNER.invoke(app, args, catch_exceptions=False)
    return str(caught.value)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--yarn-api=soap", "--yarn-api: must be one of auto, rest, rpc, got 'soap'"),
        ("--controllers=x", "--controllers: must be * or yarnresource, got 'x'"),
        ("--shrink-grace-period=-1s", "must be at least 0s, or never"),
        ("--shrink-grace-period=soon", "--shrink-grace-period: "),
        ("--yarn-poll-interval=0s", "--yarn-poll-interval: must be more than 0, got '0s'"),
        ("--original-account=maybe", "--original-account: must be true or false, got 'maybe'"),
        ("--yarn-ca-file=/none", "/none: cannot be read"),
    ],
)
def test_flags_that_mean_nothing(conf: Path, flags: str, message: str) -> None:
    """The flag, what was found, and what is accepted."""
    assert message in refusal("yarn-operator", f"--hadoop-conf-dir={conf}", flags)


def test_the_address_of_yarn_is_required(conf: Path) -> None:
    """By the flag or the variable; and Kerberos is refused before anything is connected to."""
    assert "a folder with yarn-site.xml" in refusal("yarn-operator")
    (conf / "core-site.xml").write_text(
        "<configuration><property><name>hadoop.security.authentication</name>"
        "<value>kerberos</value></property></configuration>"
    )
    assert "Kerberos is not supported" in refusal("yarn-operator", f"--hadoop-conf-dir={conf}")


def test_the_deployment_of_the_original_starts_this(
    conf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All its flags are understood: what is wrong is the kubeconfig that does not exist."""
    monkeypatch.setenv("HADOOP_CONF_DIR", str(conf))
    args = (
        "-v=4 --metrics-addr=:8080 --health-probe-addr=:8000 --enable-leader-election=true "
        "--leader-election-namespace=koordinator-system --namespace= --enable-pprof=true "
        "--pprof-addr=:8090 --sync-period=0 --rest-config-qps=30 --rest-config-burst=50 "
        "--controllers=* --kubeconfig=/none"
    )
    assert "/none" in refusal("yarn-operator", *args.split())


def test_a_copilot_that_cannot_listen(tmp_path: Path) -> None:
    """The socket is named."""
    (tmp_path / "file").write_text("")
    flags = [f"--server-endpoint={tmp_path}/file/x.sock", "--sync-memory-cgroup=false"]
    assert f"{tmp_path}/file/x.sock: cannot listen" in refusal("yarn-copilot", *flags)
    assert "--node-manager-endpoint" in refusal("yarn-copilot", "--node-manager-endpoint=x")
