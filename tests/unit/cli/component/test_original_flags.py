"""Command lines of the original's Deployments, as its Helm chart writes them."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from koordinator.cli.commands import COMMANDS
from koordinator.cli.component.original_flags import (
    NO_RENAMES,
    OF_DESCHEDULER,
    OF_DEVICE_DAEMON,
    OF_KOORDLET,
    OF_MANAGER,
    OF_SCHEDULER,
    SPELLED_BY_MANAGER,
    as_declared,
)
from koordinator.cli.main import PROGRAMS, app
from koordinator.foundation.errors import InputError

RUNNER = CliRunner()
IGNORED = {
    "scheduler": OF_SCHEDULER,
    "manager": OF_MANAGER,
    "koordlet": OF_KOORDLET,
    "descheduler": OF_DESCHEDULER,
    "device-daemon": OF_DEVICE_DAEMON,
}
DECLARED = {
    name: {option: each for each in COMMANDS[name].load().params for option in each.opts}
    for name in IGNORED
}


def taken(command: str, *args: str) -> list[str]:
    spelled = SPELLED_BY_MANAGER if command == "manager" else NO_RENAMES
    return as_declared(args, DECLARED[command], IGNORED[command], lambda it: it == "audit", spelled)


@pytest.mark.parametrize(
    ("command", "args"),
    [
        (
            "scheduler",
            (
                "--port=10251 --authentication-skip-lookup=true --v=4 --feature-gates= "
                "--enable-network-topology-manager=true --kubeconfig=/none"
            ),
        ),
        (
            "manager",
            (
                "--enable-leader-election --metrics-addr=:8080 --health-probe-addr=:8000 "
                "--logtostderr=true --leader-election-namespace=koordinator-system --v=4 "
                "--feature-gates= --sync-period= --config-namespace=koordinator-system "
                "--kubeconfig=/none"
            ),
        ),
        (
            "manager",  # koord-queue
            (
                "--v=4 --oversellrate=1 --qps=50 --burst=50 --enableVisibilityServer=false "
                "--leaderElection=true --podInitialBackoffSeconds=1 --podMaxBackoffSeconds=20 "
                "--scheduleSuspendTimeInMillSecond=10 --enableApiHandler=false "
                "--defaultPreemptible=true --enableParentLimit=false --strictDequeueMode=false "
                "--admissionCheckControllerWorker=2 --default-queue-policy=Priority "
                "--feature-gates=ElasticQuota=true --kubeconfig=/none"
            ),
        ),
        (
            "manager",  # koord-queue-controllers
            (
                "--leader-elect --enabled-extensions=job,sparkapp,rayjob,tfjob,pytorchjob,workflow "
                "--qps=300 --burst=300 --metrics-bind-address=:8080 "
                "--health-probe-bind-address=:8081 --leader-namespace=koord-queue "
                "--enable-job-extensions=true --manage-all-jobs=false --workers=20 --wqqps=100 "
                "--enable-pod-reclaim=false --default-requeue-period=1m --enable-reservation=false "
                "--enable-network-aware=false --kubeconfig=/none"
            ),
        ),
        (
            "koordlet",
            (
                "-addr=:9316 -cgroup-root-dir=/host-cgroup/ "
                "-feature-gates=BECPUEvict=true,BEMemoryEvict=true,CgroupReconcile=true,"
                "Accelerators=true -runtime-hooks-host-endpoint=/var/run/koordlet/koordlet.sock "
                "--logtostderr=true --evict-by-copilot-agent=true --v=4 --kubeconfig=/none"
            ),
        ),
        (
            "koordlet",
            (
                "-cgroup-root-dir=/host-cgroup/ -feature-gates=AllAlpha=true,AllBeta=true "
                "-runtime-hooks-network=unix "
                "-runtime-hooks-addr=/host-var-run-koordlet/koordlet.sock --kubeconfig=/none"
            ),
        ),
        (  # as kubeadm runs kube-scheduler
            "scheduler",
            (
                "--authentication-kubeconfig=/none --authorization-kubeconfig=/none "
                "--bind-address=127.0.0.1 --kubeconfig=/none --leader-elect=true"
            ),
        ),
        (
            "scheduler",
            (
                "--kubeconfig=/none --tls-min-version=VersionTLS13 --profiling=false "
                "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 --kube-api-qps=100 "
                "--kube-api-burst=200 --client-ca-file=/etc/kubernetes/pki/ca.crt"
            ),
        ),
    ],
)
def test_the_deployments_of_the_original_start_these(
    command: str, args: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All flags are understood: what is wrong is the kubeconfig that does not exist."""
    monkeypatch.setenv("NODE_NAME", "n")
    with pytest.raises(InputError, match="/none"):
        RUNNER.invoke(app, [command, *args.split()], catch_exceptions=False)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["-leader-elect"], ["--leader-elect=true"]),
        (["--leader-elect=false", "-v=2"], ["--leader-elect=false", "-v", "2"]),
        (["--v", "2", "-f", "a.yaml"], ["-v", "2", "-f", "a.yaml"]),
        (["--write_config_to", "x"], ["--write-config-to", "x"]),
        (["--audit=true", "--once=false"], ["--audit"]),
        (["--profiling", "--stderrthreshold", "2", "-o", "json"], ["-o", "json"]),
        (["-f", "-", "--nobody-knows", "x"], ["-f", "-", "--nobody-knows", "x"]),
        (["--", "--profiling"], ["--", "--profiling"]),
    ],
)
def test_flags_are_taken_as_go_takes_them(args: Sequence[str], expected: Sequence[str]) -> None:
    """One dash or two; booleans with or without a value; what is unknown stays for click."""
    assert taken("scheduler", *args) == expected


def test_flags_of_queues_have_their_effect_in_the_original_s_spelling() -> None:
    """The flags of queues are flags of the manager."""
    assert taken("manager", "--qps=7", "--leader-elect", "-defaultPreemptible=false") == [
        "--rest-config-qps=7",
        "--enable-leader-election=true",
        "--default-preemptible=false",
    ]
    assert {f"--{name}" for name in SPELLED_BY_MANAGER.values()} <= DECLARED["manager"].keys()
    assert not SPELLED_BY_MANAGER.keys() & {each[2:] for each in DECLARED["manager"]}


def test_ignored_flags_are_logged_with_their_reason(caplog: pytest.LogCaptureFixture) -> None:
    """A subcommand after the flag is not parsed as its value."""
    assert taken("koordlet", "--tsdb-path=/x", "--enable-pprof", "audit") == ["audit"]
    assert taken("koordlet", "--no-enable-node-metric-report") == ["--no-enable-node-metric-report"]
    assert taken("koordlet", "--enable-node-metric-report=false") == [
        "--no-enable-node-metric-report"
    ]

    ignored = [(record.flag, record.reason) for record in caplog.records]  # type: ignore[attr-defined]
    assert ignored == [
        ("--tsdb-path", "samples are kept in memory for the windows of the NodeMetric"),
        ("--enable-pprof", "/debug/threads shows the stacks of all threads"),
    ]


def test_gates_add_up() -> None:
    """As other flags that are lists: each one adds to those before, as in Go."""
    assert taken(
        "scheduler", "--feature-gates=A=true", "--port=1", "--feature-gates", "B=false"
    ) == [
        "--feature-gates=A=true,B=false",
        "--port=1",
    ]
    assert taken("manager", "--controllers=*", "--controllers=-nodemetric") == [
        "--controllers=*,-nodemetric"
    ]


FLAGS = Path(__file__).with_name("original_flags.txt").read_text("utf-8").splitlines()[1:]


@pytest.mark.parametrize("command", ["scheduler", "manager", "descheduler", "device-daemon"])
def test_no_flag_of_the_original_is_unknown(command: str) -> None:
    """Each flag exists or has a reason for its absence.  For koordlet see ``test_koordlet``."""
    lines = [line.split() for line in FLAGS if line.startswith(f"{command}: ")]
    flags = {f"--{flag}" for _, *words in lines for flag in words}
    known = {f"--{flag}" for flag in IGNORED[command]} | DECLARED[command].keys()
    assert len(flags) > 5
    assert flags - known - {"--v"} == set()


def test_two_api_servers_for_reviews_are_refused() -> None:
    """One flag is for both, authentication and authorization."""
    flags = ["--authentication-kubeconfig=/a", "--authorization-kubeconfig=/b"]
    with pytest.raises(InputError, match="must name the same file in both"):
        RUNNER.invoke(app, ["scheduler", *flags], catch_exceptions=False)


def test_programs_of_the_original_are_commands(tmp_path: Path) -> None:
    """A link by the name that its Deployments call does what they mean."""
    link = tmp_path / "koord-device-daemon"
    link.symlink_to(Path(sys.executable).with_name("koord"))
    done = subprocess.run([link, "--help"], capture_output=True, text=True, check=True)
    assert "Usage: koord device-daemon " in done.stdout
    assert set(PROGRAMS.values()) <= set(COMMANDS)


def test_a_boolean_that_is_neither_is_named() -> None:
    """As Go does."""
    with pytest.raises(InputError, match="--audit: must be true or false, got 'maybe'"):
        taken("scheduler", "--audit=maybe")


def test_nothing_is_both_taken_and_left_out() -> None:
    """A flag that is supported has no reason for being omitted."""
    for command, ignored in IGNORED.items():
        assert not {f"--{flag}" for flag in ignored} & DECLARED[command].keys()
