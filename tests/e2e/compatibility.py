"""Recorded results of end-to-end tests by release of Kubernetes, for the page of tested versions.

    KUBERNETES_VERSION=1.35 python -m pytest tests/e2e/stock --junitxml e2e-1.35.xml
    python -m tests.e2e.compatibility v1.37.2=e2e-1.37.xml v1.35.4=e2e-1.35.xml

replaces the results of these releases in results.json, from which ``docs/generate/support.py``
makes the page.  Of several reports of a release, a later one has what was tried again.  ``.ci/run``
writes build/e2e.xml and build/e2e-host.xml, and build/e2e-again.xml if it tried tests again.
"""

import argparse
import datetime as dt
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from docs.generate.support import RESULTS, ReleaseResults, read_results

_ONE_FOLDER = 4  # parts of tests.e2e.FOLDER.test_file

Outcomes = Counter[tuple[str, str]]  # (folder, passed, failed or skipped) -> tests


def read_outcomes(*reports: Path) -> Outcomes:
    """Count the tests of JUnit reports by folder and outcome; the last report of a test counts."""
    outcomes: dict[tuple[str, str], tuple[str, str]] = {}  # by class and name
    cases = (case for report in reports for case in ET.parse(report).iter("testcase"))  # noqa: S314 -- pytest wrote it
    for case in cases:
        parts = case.get("classname", "").split(".")
        folder = parts[2] if len(parts) >= _ONE_FOLDER else "other"
        tags = {child.tag for child in case}
        if tags & {"failure", "error"}:
            outcome = "failed"
        else:
            outcome = "skipped" if "skipped" in tags else "passed"
        outcomes[case.get("classname", ""), case.get("name", "")] = (folder, outcome)
    return Counter(outcomes.values())


def merged(
    before: Mapping[str, ReleaseResults], by_release: Mapping[str, Outcomes], run: str
) -> dict[str, ReleaseResults]:
    """Return the results with some releases replaced; ``run`` is the month of the run."""
    releases = dict(before)
    for release, outcomes in by_release.items():
        folders: dict[str, dict[str, int]] = {}
        for (folder, outcome), count in sorted(outcomes.items()):
            if outcome != "skipped":
                folders.setdefault(folder, {})[outcome] = count
        releases[release.removeprefix("v")] = ReleaseResults(run, folders)
    return releases


def main(arguments: Sequence[str] | None = None) -> None:
    """Record the results of JUnit reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reports", nargs="+", metavar="RELEASE=REPORT")
    pairs = [each.partition("=") for each in parser.parse_args(arguments).reports]
    reports: dict[str, list[Path]] = {}
    for release, _, report in pairs:
        reports.setdefault(release, []).append(Path(report))
    by_release = {release: read_outcomes(*its) for release, its in reports.items()}
    run = f"{dt.datetime.now(dt.UTC):%Y-%m}"  # noqa: TID251 -- a script
    text = msgspec.json.encode(merged(read_results(), by_release, run), order="sorted")
    RESULTS.write_bytes(msgspec.json.format(text) + b"\n")


if __name__ == "__main__":
    main()
