"""Renewal of credentials before they expire."""

import json
import stat
from pathlib import Path

import pytest
from tests.unit.cluster.kubernetes.scripted_server import write_kubeconfig

from koordinator.cluster.kubernetes.connection import find_connection
from koordinator.cluster.kubernetes.credentials import Credentials
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import ClusterError, InputError

EXPIRES = 1_000
EXEC = "exec: {command: ./plugin, apiVersion: client.authentication.k8s.io/v1, installHint: get it}"


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def credentials(folder: Path, clock: VirtualClock, user: str) -> Credentials:
    config = write_kubeconfig(folder / "config", "http://api", user)
    return Credentials(find_connection(str(config), environ={}), clock, {"PATH": "/usr/bin:/bin"})


def headers(source: Credentials) -> dict[str, str]:
    return dict((source.current() or source.renewed()).headers)


def plugin(folder: Path, *lines: str) -> None:
    """Write a plugin that counts how often it ran."""
    file = folder / "plugin"
    file.write_text("\n".join(["#!/bin/sh", f"echo run >> {folder}/runs", *lines]))
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


def runs(folder: Path) -> int:
    return len((folder / "runs").read_text().splitlines())


def answer(expires: str = "1970-01-01T00:16:40Z", **status: str) -> str:
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {**(status or {"token": "given"}), "expirationTimestamp": expires},
    }
    return f"echo '{json.dumps(credential)}'"


def test_a_token_is_sent(tmp_path: Path, clock: VirtualClock) -> None:
    """As a bearer token; a user name and password as basic authentication."""
    assert headers(credentials(tmp_path, clock, "token: t")) == {"Authorization": "Bearer t"}
    basic = credentials(tmp_path, clock, "username: joe, password: secret")
    assert headers(basic) == {"Authorization": "Basic am9lOnNlY3JldA=="}


def test_a_token_file_is_read_again(tmp_path: Path, clock: VirtualClock) -> None:
    """Once a minute; while it can't be read the last token stays."""
    token = tmp_path / "token"
    token.write_text("old\n")
    result = credentials(tmp_path, clock, "tokenFile: token, token: unused")
    token.write_text("new\n")
    assert headers(result) == {"Authorization": "Bearer old"}
    clock.advance_to(61)
    assert headers(result) == {"Authorization": "Bearer new"}

    token.unlink()
    clock.advance_to(122)
    assert headers(result) == {"Authorization": "Bearer new"}


def test_refused_token_is_reread_immediately(tmp_path: Path, clock: VirtualClock) -> None:
    """A token that was read at the moment of the refusal is not read again."""
    token = tmp_path / "token"
    token.write_text("old")
    result = credentials(tmp_path, clock, "tokenFile: token")
    refused = result.current()
    assert result.renewed(refused) is refused
    clock.advance_to(10)
    assert result.renewed(refused) is refused, "the file is what it was"
    clock.advance_to(20)
    token.write_text("new")
    assert dict(result.renewed(refused).headers) == {"Authorization": "Bearer new"}


def test_a_plugin_runs_until_its_answer_expires(tmp_path: Path, clock: VirtualClock) -> None:
    """The plugin is beside the kubeconfig; requests reuse its credential until it expires."""
    plugin(tmp_path, answer())
    result = credentials(tmp_path, clock, EXEC)
    clock.advance_to(EXPIRES - 1)
    assert headers(result) == {"Authorization": "Bearer given"}
    assert runs(tmp_path) == 1

    clock.advance_to(EXPIRES)
    headers(result)
    assert runs(tmp_path) == 2


def test_a_refused_answer_makes_the_plugin_run(tmp_path: Path, clock: VirtualClock) -> None:
    """Many refusals at the same time are one reason, not many."""
    plugin(tmp_path, answer())
    result = credentials(tmp_path, clock, EXEC)
    clock.advance_to(10)
    refused = result.current()
    plugin(tmp_path, answer(token="better"))  # noqa: S106 -- not a real token
    for _ in range(3):
        assert dict(result.renewed(refused).headers) == {"Authorization": "Bearer better"}
    assert runs(tmp_path) == 2


def test_plugin_gets_its_environment_and_the_cluster(tmp_path: Path, clock: VirtualClock) -> None:
    """The environment of its entry, and the cluster if it wants to know."""
    plugin(
        tmp_path,
        f'echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/info',
        f'echo "$1 $NAME" > {tmp_path}/seen',
        answer(),
    )
    more = ", provideClusterInfo: true, args: [a], env: [{name: NAME, value: v}]}"
    credentials(tmp_path, clock, EXEC.removesuffix("}") + more)

    info = json.loads((tmp_path / "info").read_text())
    assert info["spec"] == {"interactive": False, "cluster": {"server": "http://api"}}
    assert (tmp_path / "seen").read_text() == "a v\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("echo why >&2; exit 3", "plugin .*/plugin: exit status 3: why"),
        ("echo secret", "its output is no ExecCredential"),
        (answer(other="x"), "neither a token nor a certificate"),
    ],
)
def test_a_plugin_that_fails(tmp_path: Path, clock: VirtualClock, line: str, message: str) -> None:
    """The message has what it complained about, never what it printed for us."""
    plugin(tmp_path, line)
    with pytest.raises(ClusterError, match=message) as caught:
        credentials(tmp_path, clock, EXEC)
    assert "secret" not in str(caught.value)


def test_missing_plugin_is_reported_with_its_install_hint(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """The error shows the installHint of the kubeconfig."""
    with pytest.raises(InputError, match=r"exec\.command: cannot run .*No such file.*; get it"):
        credentials(tmp_path, clock, EXEC)


def test_removed_protocol_version_is_rejected(tmp_path: Path, clock: VirtualClock) -> None:
    """The message lists the supported versions."""
    with pytest.raises(InputError, match=r"exec\.apiVersion: must be .*v1alpha1'"):
        credentials(tmp_path, clock, EXEC.replace("io/v1,", "io/v1alpha1,"))


def test_invalid_certificate_is_reported(tmp_path: Path, clock: VirtualClock) -> None:
    """The error of ssl is reported with the name of the kubeconfig."""
    config = write_kubeconfig(tmp_path / "config", "https://api")
    (tmp_path / "ca").write_text("nonsense")
    text = config.read_text()
    config.write_text(text.replace("https://api'", "https://api', certificate-authority: ca"))
    with pytest.raises(InputError, match=rf"{config}.*must be PEM"):
        Credentials(find_connection(str(config), environ={}), clock, {})
