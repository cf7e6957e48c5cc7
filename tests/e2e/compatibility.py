"""The table of releases of Kubernetes that the e2e tests ran on, for the page of features.

    KUBERNETES_VERSION=1.35 python -m pytest tests/e2e/stock --junitxml e2e-1.35.xml
    python -m tests.e2e.compatibility v1.37.2=e2e-1.37.xml v1.35.4=e2e-1.35.xml

writes what passed, folder by folder, between the two marks in docs/features.md.
"""

import argparse
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/features.md"
BEGIN, END = "<!-- compatibility: begin -->", "<!-- compatibility: end -->"
_ONE_FOLDER = 4  # parts of tests.e2e.FOLDER.test_file

Outcomes = Counter[tuple[str, str]]  # (folder, passed, failed or skipped) -> tests


def read_outcomes(report: Path) -> Outcomes:
    """Count the tests of a JUnit report by folder and outcome."""
    outcomes: Outcomes = Counter()
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 -- pytest wrote it
        parts = case.get("classname", "").split(".")
        folder = parts[2] if len(parts) >= _ONE_FOLDER else "other"
        tags = {child.tag for child in case}
        if tags & {"failure", "error"}:
            outcome = "failed"
        else:
            outcome = "skipped" if "skipped" in tags else "passed"
        outcomes[folder, outcome] += 1
    return outcomes


def table(by_release: Mapping[str, Outcomes]) -> str:
    """Return a Markdown table: a row for each folder, a column for each release."""
    folders = sorted({folder for outcomes in by_release.values() for folder, _ in outcomes})
    rows = [
        ["`tests/e2e`", *(release.removeprefix("v") for release in by_release)],
        ["---"] * (len(by_release) + 1),
        *([folder, *(_cell(found, folder) for found in by_release.values())] for folder in folders),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(outcomes: Outcomes, folder: str) -> str:
    passed, failed = outcomes[folder, "passed"], outcomes[folder, "failed"]
    if not passed + failed:
        return "not run"
    return f"{passed} passed" if not failed else f"{passed} passed, {failed} failed"


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the table into the page of features."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("reports", nargs="+", metavar="RELEASE=REPORT")
    pairs = [each.partition("=") for each in parser.parse_args(arguments).reports]
    by_release: dict[str, Outcomes] = {}
    for release, _, report in pairs:
        by_release.setdefault(release, Counter()).update(read_outcomes(Path(report)))
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{table(by_release)}\n{END}{after}", "utf-8")


if __name__ == "__main__":
    main()
