"""Run one of the originals' suites; exits 1 if a spec came otherwise than ``verdicts`` knows."""

import argparse
import sys
import tempfile
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path

from tests.e2e.controlplane import ControlPlane
from tests.e2e.manager_process import NAMESPACE
from tests.originals import stage, suites, verdicts

#: What decides about pods: everything of the scheduler's own, and claims.
_FOCUS = {
    "claims": [r"\[DRA\] kubelet", r"\[DRA\] \[FeatureGate:DRAExtendedResource\]"],
    "devices": [r"\] DeviceShare", r"\] Preemption .* with device"],
    "koordinator": [r"\[scheduling\]", r"\[quota\]", r"\[slo-controller\]"],
    "kubernetes": [r"\[sig-scheduling\]", r"\[DRA\] control plane", r"\[DRA\] .*CRUD Tests"],
}
_KOORDINATOR_FLAGS = [
    "--e2e-verify-service-account=false",  # this and the next as its CI has them
    "--system-pods-startup-timeout=10s",
    f"--koordinator-component-namespace={NAMESPACE}",
]
_SCHEDULER_CONFIG = "config/manager/scheduler-config.yaml"
#: It writes the devices of pods in other words, and the devices of reservations not.
_WEBHOOK_OF_PODS = ("mpod-create.koordinator.sh", "mpod-update.koordinator.sh")


def main() -> int:
    """Build, start, run, compare."""
    parser = argparse.ArgumentParser(prog="python -m tests.originals", description=__doc__)
    parser.add_argument("suite", choices=sorted(_FOCUS))
    parser.add_argument("--checkout", type=Path, help="of Koordinator; its suite is in it")
    parser.add_argument("--focus", action="append", help="regular expressions of names of specs")
    parser.add_argument("--keep", type=Path, help="folder for all logs; a temporary one if not")
    arguments = parser.parse_args()
    name: str = arguments.suite
    checkout: Path | None = arguments.checkout
    if name in {"devices", "koordinator"} and checkout is None:
        parser.error("the suite of Koordinator is in a checkout of it: --checkout FOLDER")
    program = suites.kubernetes() if checkout is None else suites.koordinator(checkout)
    with tempfile.TemporaryDirectory(prefix="koordinator-originals-") as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        skips = [f"--ginkgo.skip={it.pattern}" for it in verdicts.NOT_RUN[name]]
        with _stage(name, folder / "cluster", checkout) as cluster:
            specs = suites.run(
                program,
                cluster.kubeconfig(),
                folder,
                arguments.focus or _FOCUS[name],
                [*(_KOORDINATOR_FLAGS if checkout else ()), *skips],
            )
    for spec in specs:
        print(f"{spec.state:9} {spec.run_s:6.1f} s  {spec.name}")
        if spec.state != "passed":
            print("".join(f"    {line}\n" for line in spec.why.splitlines()[:12]), end="")
    print(
        ", ".join(f"{count} {state}" for state, count in Counter(it.state for it in specs).items())
    )
    surprises = verdicts.surprises(name, specs)
    print("\n".join(surprises))
    return 1 if surprises or not specs else 0


def _stage(name: str, state: Path, checkout: Path | None) -> AbstractContextManager[ControlPlane]:
    if checkout is None:
        return stage.claims(state) if name == "claims" else stage.kubernetes(state)
    left_out = _WEBHOOK_OF_PODS if name == "devices" else ()
    return stage.koordinator(state, checkout / _SCHEDULER_CONFIG, left_out)


if __name__ == "__main__":
    sys.exit(main())
