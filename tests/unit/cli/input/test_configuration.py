"""Files of ``--config``, the default without it, and plugins of other packages."""

import json
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from koordinator.api.codec import with_all_fields
from koordinator.api.kubescheduler import KubeSchedulerConfiguration, decode_configuration
from koordinator.cli.input.configuration import plugins_for, read_configuration
from koordinator.cli.main import app
from koordinator.foundation.errors import InputError
from koordinator.simulator.embedded import STOCK
from koordinator.simulator.policies import shipped_configuration

ROOT = Path(__file__).parents[4]

WORLD = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "110"}}
---
apiVersion: v1
kind: Pod
metadata: {name: stock}
spec: {containers: [{name: c, image: i, resources: {requests: {cpu: "1"}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: ours}
spec:
  schedulerName: koord-scheduler
  containers: [{name: c, image: i, resources: {requests: {cpu: "1"}}}]
"""
QUOTA = """
---
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata: {name: small, namespace: default}
spec: {min: {cpu: 0}, max: {cpu: 500m}}
---
apiVersion: v1
kind: Pod
metadata: {name: member, labels: {quota.scheduling.koordinator.sh/name: small}}
spec: {schedulerName: SCHEDULER, containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}
"""


def placed(text: str, *flags: str) -> tuple[set[str], str]:
    """Return the pods that got a node, and the text on standard error."""
    done = CliRunner().invoke(app, ["schedule", "-f", "-", "-o", "json", *flags], input=text)
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert data.keys() == {"placements", "unschedulable", "evicted"}  # the contract
    return {each["pod"] for each in data["placements"]}, done.stderr


@pytest.mark.parametrize(
    ("flags", "pods"),
    [
        ((), {"default/stock", "default/ours"}),
        (("--config", "kubernetes"), {"default/stock"}),
        (("--config", "koordinator"), {"default/ours"}),
    ],
)
def test_both_profiles_are_the_default_and_each_has_a_name(
    flags: tuple[str, ...], pods: set[str]
) -> None:
    """The schedulerName of a pod selects the profile."""
    assert placed(WORLD, *flags) == (pods, "")


def test_a_file_may_be_called_as_a_configuration_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``./`` in front of it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "koordinator").write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{schedulerName: mine}]\n"
    )

    assert placed(WORLD, "--config", "./koordinator") == (set(), "")
    assert read_configuration("koordinator") == shipped_configuration()


def test_missing_configuration_file_error_names_the_alternatives() -> None:
    """A misspelt ``kubernetes`` is reported."""
    with pytest.raises(InputError, match=r"No such file.*koordinator or kubernetes"):
        read_configuration("kuberntes")


def test_the_shipped_configuration_is_that_of_the_chart() -> None:
    """The chart adds the version alone."""
    values = yaml.load((ROOT / "charts/koordinator/values.yaml").read_text(), yaml.CSafeLoader)
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}

    assert shipped_configuration() == decode_configuration(
        head | values["scheduler"]["config"], "values.yaml"
    )


def test_quotas_limit_the_shipped_profile_and_other_profiles_get_a_warning() -> None:
    """The same pod: refused by one profile, placed by the other, with a word about it."""
    limited, silent = placed(WORLD + QUOTA.replace("SCHEDULER", "koord-scheduler"))
    passed, warnings = placed(WORLD + QUOTA.replace("SCHEDULER", "default-scheduler"))

    assert "default/member" not in limited
    assert silent == ""
    assert "default/member" in passed
    assert "(default/member) asks for a quota, which has no effect: profile default-scheduler" in (
        warnings
    )


@pytest.mark.parametrize(
    ("manifest", "warning"),
    [
        (
            (
                "apiVersion: scheduling.sigs.k8s.io/v1alpha1\nkind: PodGroup\nmetadata: {name: g}\n"
                "spec: {minMember: 1}\n"
            ),
            "1 PodGroup (default/g) without effect",
        ),
        (
            "apiVersion: slo.koordinator.sh/v1alpha1\nkind: NodeMetric\nmetadata: {name: n1}\n",
            "1 NodeMetric (n1) without effect",
        ),
        (
            "apiVersion: scheduling.koordinator.sh/v1alpha1\nkind: Device\nmetadata: {name: n1}\n",
            "1 Device (n1) without effect",
        ),
        (
            (
                "apiVersion: v1\nkind: Pod\nmetadata: {name: share}\nspec: {containers: [{name: c, "
                "image: i, resources: {limits: {koordinator.sh/gpu: 50}}}]}\n"
            ),
            "1 pod (default/share) asks for shares of devices, which has no effect",
        ),
        (
            (
                "apiVersion: v1\nkind: Pod\nmetadata: {name: lost, labels: "
                "{quota.scheduling.koordinator.sh/name: none}}\n"
                "spec: {schedulerName: koord-scheduler, containers: [{name: c, image: i}]}\n"
            ),
            "there is no ElasticQuota 'none', which 1 pod (default/lost) names",
        ),
    ],
)
def test_settings_that_no_profile_uses_get_a_warning(manifest: str, warning: str) -> None:
    """On standard error, so that programs read what they always did."""
    stock = "kubernetes" if "koord-scheduler" not in manifest else "koordinator"

    assert warning in placed(f"{WORLD}\n---\n{manifest}", "--config", stock)[1]


BROKEN = "acme-plugins 1.2 (dear = acme_plugins:PLUGIN): cannot be loaded: RuntimeError: no licence"


@pytest.fixture
def _broken_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package whose module fails when it is loaded."""
    (tmp_path / "acme_plugins.py").write_text("raise RuntimeError('no\\nlicence')\n")
    metadata = tmp_path / "acme_plugins-1.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-plugins\nVersion: 1.2\n")
    (metadata / "entry_points.txt").write_text(
        "[koordinator.scheduler.plugins]\ndear = acme_plugins:PLUGIN\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("_broken_package")
def test_a_broken_package_is_named_and_affects_its_users_only(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A warning while its plugin is unused, one line of error if it may be used."""
    assert "acme_plugins" not in sys.modules
    assert plugins_for(STOCK) == ()
    assert BROKEN in capsys.readouterr().err

    plugins = {"score": {"enabled": [{"name": "DearNodes"}]}}
    wanting = decode_configuration(
        with_all_fields(KubeSchedulerConfiguration())
        | {"profiles": [{"schedulerName": "x", "plugins": plugins}]},
        "",
    )
    with pytest.raises(InputError) as refused:
        plugins_for(wanting)
    assert str(refused.value) == f"plugin package {BROKEN}; is DearNodes in it?"
