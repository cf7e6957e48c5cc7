"""Command lines of etcd and kube-apiserver."""

from collections.abc import Sequence
from pathlib import Path

from tests.e2e.controlplane import binaries
from tests.e2e.controlplane.certificates import Authority
from tests.e2e.controlplane.endpoint import Endpoint, free_port

_ISSUER = "https://kubernetes.default.svc"
_SERVER_NAMES = ("127.0.0.1", "localhost", "kubernetes", "kubernetes.default.svc")


def etcd(client: Endpoint, data_dir: Path) -> list[str]:
    """Return the command of a cluster of one, which is not afraid of power cuts."""
    peer = Endpoint(free_port())
    return [
        str(binaries.find("etcd")),
        f"--data-dir={data_dir}",
        f"--listen-client-urls={client.url}",
        f"--advertise-client-urls={client.url}",
        f"--listen-peer-urls={peer.url}",
        f"--initial-advertise-peer-urls={peer.url}",
        f"--initial-cluster=default={peer.url}",
        "--unsafe-no-fsync",
        f"--quota-backend-bytes={4 << 30}",
        "--log-level=warn",
    ]


def apiserver(
    api: Endpoint,
    store: Endpoint,
    authority: Authority,
    tokens_path: Path,
    admission_off: Sequence[str],
) -> list[str]:
    """Return the command of an API server with RBAC and every way to authenticate but OIDC."""
    certificate, key = authority.issue_server("kube-apiserver", _SERVER_NAMES)
    proxy_certificate, proxy_key = authority.issue_client("front-proxy")
    account_certificate, account_key = authority.issue_client("service-accounts")
    return [
        str(binaries.find("kube-apiserver")),
        f"--etcd-servers={store.url}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={api.port}",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={key}",
        f"--client-ca-file={authority.ca_path}",
        f"--requestheader-client-ca-file={authority.ca_path}",
        "--requestheader-allowed-names=front-proxy",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={proxy_certificate}",
        f"--proxy-client-key-file={proxy_key}",
        f"--token-auth-file={tokens_path}",
        "--authorization-mode=RBAC",
        "--allow-privileged=true",  # as kubeadm has it: node agents are
        f"--service-account-issuer={_ISSUER}",
        f"--service-account-key-file={account_certificate}",
        f"--service-account-signing-key-file={account_key}",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--endpoint-reconciler-type=none",
        "--kubelet-preferred-address-types=InternalIP",  # a node's name resolves nowhere
        f"--disable-admission-plugins={','.join(admission_off)}",
        "--etcd-compaction-interval=0",  # tests compact the history themselves
        "--delete-collection-workers=16",
        "--max-requests-inflight=2000",
        "--max-mutating-requests-inflight=1000",
    ]


def controller_manager(
    authority: Authority, kubeconfig: Path, controllers: Sequence[str]
) -> list[str]:
    """Return the arguments, without the program and where it listens."""
    return [
        f"--controllers={','.join(controllers)}",
        f"--kubeconfig={kubeconfig}",
        f"--root-ca-file={authority.ca_path}",
        f"--service-account-private-key-file={authority.folder / 'client-service-accounts.key'}",
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
    ]
