"""Two real ResourceManagers, one of them active, whose pages speak TLS: who is asked, and how."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.certificates import Authority
from tests.e2e.waiting import eventually
from tests.e2e.yarn.account_auditor import AccountAuditor
from tests.e2e.yarn.operator_process import YarnOperatorProcess
from tests.e2e.yarn.real_yarn import (
    KEYSTORE_PASSWORD,
    REGISTERED,
    Amounts,
    RealYarn,
    ResourceManagers,
    missing,
)
from tests.e2e.yarn.test_yarn_operator import CONFIG, Machine


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Make who signs the certificate of the ResourceManagers."""
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def yarn(
    controlplane: ControlPlane, tmp_path_factory: pytest.TempPathFactory, authority: Authority
) -> Iterator[RealYarn]:
    """Run two ResourceManagers and a NodeManager."""
    if why := missing():
        pytest.skip(why)
    managers = ResourceManagers(2, _keystore(authority), authority.ca_path)
    folder = tmp_path_factory.mktemp("yarn")
    with RealYarn(folder, controlplane.process_group, managers) as running:
        yield running


def _keystore(authority: Authority) -> Path:
    certificate, key = (path.read_bytes() for path in authority.issue_server("rm", ["localhost"]))
    private = serialization.load_pem_private_key(key, None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    store = pkcs12.serialize_key_and_certificates(
        b"rm",
        private,
        x509.load_pem_x509_certificate(certificate),
        None,
        serialization.BestAvailableEncryption(KEYSTORE_PASSWORD.encode()),
    )
    path = authority.folder / "rm.p12"
    path.write_bytes(store)
    return path


@pytest.mark.usefixtures("manager")
@pytest.mark.parametrize("api", ["rest", "rpc", "auto"])
def test_the_active_one_is_found_by_asking(
    api: str,
    controlplane: ControlPlane,
    namespace: str,
    yarn: RealYarn,
    authority: Authority,
) -> None:
    """A standby that becomes active gets the limits immediately."""
    yarn.kill("nm")
    yarn.start_node_manager()  # which forgets what the last test has given it
    eventually(lambda: yarn.limit() == REGISTERED, 60)
    flags = [f"--yarn-api={api}", f"--yarn-ca-file={authority.ca_path}", "--yarn-timeout=3s"]
    with YarnOperatorProcess(controlplane, yarn.conf_dir, flags) as operator:
        path = "/api/v1/namespaces/koordinator-system/configmaps"
        controlplane.api.request("POST", path, CONFIG)
        machine = Machine(controlplane, yarn, namespace)
        with AccountAuditor(controlplane, yarn, "n1") as auditor:
            machine.uses(0, "0")
            eventually(lambda: yarn.own_limit() == Amounts(9, 14745), 60)
            machine.uses(6, "8Gi")
            eventually(lambda: yarn.own_limit() == Amounts(3, 7372), 60)

            active, other = yarn.active, next(n for n in yarn.names if n != yarn.active)
            yarn.kill(active)
            machine.uses(0, "0")
            eventually(
                lambda: (
                    'koord_yarn_operator_cluster_up{cluster="__default_yarn_cluster__"} 0.0'
                    in operator.get("/metrics")
                ),
                60,
            )
            eventually(lambda: yarn.activate(other), 90)
            eventually(lambda: yarn.own_limit() == Amounts(9, 14745), 90)
        assert auditor.samples
        assert not auditor.violations()
        yarn.start_resource_manager(active)  # stands by


@pytest.mark.usefixtures("manager")
def test_untrusted_certificate_is_logged(
    controlplane: ControlPlane, namespace: str, yarn: RealYarn
) -> None:
    """Without the certificate authority no request is sent, and the log has the reason."""
    with YarnOperatorProcess(controlplane, yarn.conf_dir, ["--yarn-api=rest"]) as operator:
        Machine(controlplane, yarn, namespace)
        eventually(lambda: "certificate verify failed" in operator.last_words(), 60)
