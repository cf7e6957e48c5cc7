"""Page of tested versions: from recorded results, and from the files that lock the programs."""

import re
from collections import Counter
from pathlib import Path

from docs.generate.support import FAILURES, ROOT, ReleaseResults, compatibility, read_results
from tests.e2e.compatibility import merged, read_outcomes

REPORT = """<testsuites><testsuite>
<testcase classname="tests.e2e.stock.test_claims" name="a"/>
<testcase classname="tests.e2e.stock.test_claims" name="b"><failure/></testcase>
<testcase classname="tests.e2e.node.test_hooks" name="c"><skipped/></testcase>
<testcase classname="tests.e2e.test_install" name="d"/>
</testsuite></testsuites>"""


def test_outcomes_of_a_report_are_counted_by_folder(tmp_path: Path) -> None:
    """Files that are in no folder are counted together."""
    file = tmp_path / "report.xml"
    file.write_text(REPORT)

    assert read_outcomes(file) == {
        ("stock", "passed"): 1,
        ("stock", "failed"): 1,
        ("node", "skipped"): 1,
        ("other", "passed"): 1,
    }


def test_repeated_test_counts_as_it_ended(tmp_path: Path) -> None:
    """As CI has it: what failed is tried once more."""
    first, again = tmp_path / "report.xml", tmp_path / "again.xml"
    first.write_text(REPORT)
    again.write_text('<s><testcase classname="tests.e2e.stock.test_claims" name="b"/></s>')

    assert read_outcomes(first, again)["stock", "passed"] == 2
    assert read_outcomes(first, again)["stock", "failed"] == 0


def test_results_of_a_release_replace_those_of_its_last_run() -> None:
    """Other releases stay; skipped tests are no results."""
    before = {"1.35.4": ReleaseResults("2026-10", {"stock": {"passed": 9}})}
    counts = Counter({("stock", "passed"): 2, ("node", "skipped"): 1})

    after = merged(before, {"v1.37.2": counts}, "2026-11")
    assert after == {**before, "1.37.2": ReleaseResults("2026-11", {"stock": {"passed": 2}})}
    assert merged(after, {"v1.35.4": counts}, "2026-12")["1.35.4"].run == "2026-12"


def test_page_has_a_column_per_release_and_the_versions_of_the_programs() -> None:
    """Releases that were not tested are marked."""
    text = compatibility()

    newest, older, *_ = read_results().items()
    for release, results in (newest, older):
        assert f"Kubernetes {release} ({results.run})" in text
    counts = [results.folders["suites"]["passed"] for _, results in (newest, older)]
    row = "| `suites` | koord-scheduler, koord-manager | {} passed | {} passed |"
    assert row.format(*counts) in text
    assert "faults" not in older[1].folders
    programs = re.findall(r"^\| kube-apiserver, kube-scheduler \| (\S+) \|", text, re.MULTILINE)
    assert programs == list(read_results())
    assert f"| several components | {newest[1].folders['faults']['passed']} passed | not" in text
    for program in ("helm", "containerd", "Hadoop YARN", "Prometheus"):
        assert f"| {program} | " in text


def test_page_on_installing_names_the_minor_releases_that_were_run() -> None:
    """The newest first."""
    page = (ROOT / "docs/how-to/install.md").read_text("utf-8")
    *most, last = (release.rpartition(".")[0] for release in read_results())

    assert f"Tested with Kubernetes {', '.join(most)} and {last};" in " ".join(page.split())


def test_page_explains_the_failures_of_every_release() -> None:
    """A reader need not look them up in a log."""
    failed = {
        release
        for release, results in read_results().items()
        if any(counts.get("failed") for counts in results.folders.values())
    }
    assert failed == FAILURES.keys()
