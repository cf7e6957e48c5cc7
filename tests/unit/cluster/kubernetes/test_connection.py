"""Selection of the cluster and the user from kubeconfigs."""

import os
from pathlib import Path

import pytest

from koordinator.cluster.kubernetes.connection import Connection, find_connection
from koordinator.foundation.errors import InputError

WHOLE = """
apiVersion: v1
kind: Config
current-context: one
clusters:
- name: east
  cluster: {server: https://east:6443/, certificate-authority: pki/ca.crt, tls-server-name: kubernetes}
- name: west
  cluster: {server: http://west, proxy-url: http://proxy:3128}
users:
- name: jane
  user: {tokenFile: token, token: stale, as: admin, as-groups: [g1, g2], as-user-extra: {a/b: [c]}}
- name: joe
  user: {username: joe, password: secret}
contexts:
- name: one
  context: {cluster: east, user: jane}
- name: two
  context: {cluster: west, user: joe}
- name: nobody
  context: {cluster: west}
"""  # noqa: E501


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config"
    path.write_text(WHOLE)
    return path


def find(config: Path, context: str = "") -> Connection:
    return find_connection(str(config), context, {})


def test_the_current_context_counts(config: Path) -> None:
    """Files are relative to the kubeconfig; a token file is kept beside the token."""
    result = find(config)

    assert result.server.url == "https://east:6443"
    assert result.server.ca == config.parent / "pki/ca.crt"
    assert result.server.tls_server_name == "kubernetes"
    assert result.identity.token_file == config.parent / "token"
    assert result.identity.headers == (
        ("Impersonate-User", "admin"),
        ("Impersonate-Group", "g1"),
        ("Impersonate-Group", "g2"),
        ("Impersonate-Extra-a%2Fb", "c"),
    )


def test_context_can_be_selected(config: Path) -> None:
    """A context names a cluster and a user; without a user we are anonymous."""
    result = find(config, "two")
    assert (result.server.url, result.server.proxy_url) == ("http://west", "http://proxy:3128")
    assert result.identity.basic == ("joe", "secret")
    assert find(config, "nobody").identity.basic is None


def test_of_several_files_the_first_wins(tmp_path: Path, config: Path) -> None:
    """Entries are merged by name, and each is relative to its own file."""
    folder = tmp_path / "more"
    folder.mkdir()
    first = folder / "first"
    first.write_text(
        "current-context: two\nusers: [{name: joe, user: {tokenFile: mine}}]\ncontexts: null\n"
    )
    files = os.pathsep.join([str(first), str(tmp_path / "missing"), str(config)])

    result = find_connection(environ={"KUBECONFIG": files})

    assert result.server.url == "http://west"
    assert result.identity.token_file == folder / "mine"


def test_without_a_file_the_usual_one_is_read(tmp_path: Path, config: Path) -> None:
    """As kubectl does."""
    (tmp_path / ".kube").mkdir()
    config.rename(tmp_path / ".kube" / "config")

    assert find_connection(environ={"HOME": str(tmp_path)}).server.url == "https://east:6443"


def test_a_pod_knows_its_cluster(tmp_path: Path) -> None:
    """Without any kubeconfig the service account of the pod counts."""
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_text("c")
    pod = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443", "HOME": "/no"}

    result = find_connection(environ=pod, service_account=tmp_path)

    assert result.server.url == "https://[fd00::1]:443"
    assert result.server.ca == tmp_path / "ca.crt"
    assert result.identity.token_file == tmp_path / "token"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("server: https://east:6443/", "server: east"),
            r"clusters\[0\]\.cluster\.server: must be",
        ),
        (("server: https://east:6443/", "server: [1]"), r"clusters\[0\]\.cluster\.server: must be"),
        (("user: jane", "user: anna"), r"contexts\[0\]\.context\.user: must be one of jane, joe"),
        (
            ("cluster: east,", "cluster: far,"),
            r"contexts\[0\]\.context\.cluster: must be .*, got 'far'",
        ),
        (("current-context: one", ""), r"current-context: is required: .* nob"),
        (("current-context: one", "current-context: x"), "current-context: must be .*, got 'x'"),
        (("tls-server-name", "insecure-skip-tls-verify: true, a"), "insecure-skip-tls-verify"),
        (("as: admin, ", ""), r"users\[0\]\.user\.as: required"),
        (("token: stale", "client-key: k"), "client-certificate, client-key: must be set together"),
        (("token: stale", "auth-provider: {name: oidc}"), r"auth-provider: must be .*, got 'oidc'"),
        (("token: stale", "exec: {command: x}"), r"user\.exec\.apiVersion: is required"),
        (
            ("token: stale", "exec: {command: x, apiVersion: y, interactiveMode: Always}"),
            r"exec\.interactiveMode: must be Never or IfAvailable, got 'Always'",
        ),
        (("name: east", "{"), "not valid YAML"),
    ],
)
def test_invalid_kubeconfig_is_refused_with_file_and_field(
    config: Path, change: tuple[str, str], message: str
) -> None:
    """The file, the field, what is there and what is accepted."""
    config.write_text(WHOLE.replace(*change, 1))

    with pytest.raises(InputError, match=rf"^{config}: .*{message}"):
        find(config)


def test_a_wrong_proxy_is_named(config: Path) -> None:
    """Only what we can talk to is accepted."""
    config.write_text(WHOLE.replace("http://proxy", "socks5://proxy"))

    with pytest.raises(
        InputError, match=r"clusters\[1\]\.cluster\.proxy-url: must be .*, got 'socks5:"
    ):
        find(config, "two")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """The file may come from an argument or from the environment."""
    with pytest.raises(InputError, match=f"^{tmp_path}/x: cannot be read: No such file"):
        find(tmp_path / "x")
    with pytest.raises(InputError, match="KUBECONFIG=/x: none of these files exists"):
        find_connection(environ={"KUBECONFIG": "/x"})


def test_no_cluster_at_all() -> None:
    """The message names the flag that selects one."""
    with pytest.raises(InputError, match="--kubeconfig FILE"):
        find_connection(environ={"HOME": "/nowhere"})


def test_pod_without_token_gets_a_hint(tmp_path: Path) -> None:
    """Service account tokens can be switched off."""
    with pytest.raises(InputError, match="automountServiceAccountToken"):
        find_connection(
            environ={"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, service_account=tmp_path / "none"
        )


def test_another_file_is_no_kubeconfig(tmp_path: Path) -> None:
    """A manifest has neither clusters nor contexts to choose from."""
    file = tmp_path / "pod.yaml"
    file.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n", "utf-8")

    with pytest.raises(InputError, match=r"pod\.yaml: must be a kubeconfig file"):
        find_connection(str(file), environ={})
