"""Files that are no manifests are named, with their purpose."""

import gzip
import io
from pathlib import Path

import pytest

from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import InputError
from koordinator.simulator.manifests.reader import PATIENCE_S, ReadingProgress, read_manifests

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, image: i}]}\n"


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.yaml", "kind: Pod\nmetadata:\n\tname: x\n", "with spaces, got a tab in line 3"),
        ("a.yaml", f"{POD}\nNOTES:\n1. Get the URL:\n  export X=1\n", "not the NOTES"),
        ("a.yaml", f"{POD}\n---\nNOTES:\n  some: text\n", "not the NOTES of a Helm chart"),
        ("kustomization.yaml", "resources: [a.yaml]\n", "not a kustomization: kubectl kustomize"),
        ("a.yaml", "resources: [a.yaml]\n", "not a kustomization"),
        (
            "a.yaml",
            "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n",
            "not a kustomization",
        ),
        ("Chart.yaml", "apiVersion: v2\nname: x\nversion: 1.0.0\n", "helm template CHART"),
        ("values.yaml", "replicaCount: 1\n", "helm template CHART"),
        ("a.yaml", "nodePools: []\n", "koord simulate --workload reads it"),
        (
            "a.yaml",
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n",
            "--config reads it",
        ),
        (
            "a.yaml",
            "apiVersion: descheduler/v1alpha2\nkind: DeschedulerConfiguration\n",
            "koord descheduler --config reads it",
        ),
        ("a.yaml", "apiVersion: v1\nkind: Config\nclusters: []\n", "--kubeconfig reads it"),
    ],
)
def test_a_file_of_another_use_is_named(tmp_path: Path, name: str, text: str, problem: str) -> None:
    """Alone, and in a folder of manifests."""
    (tmp_path / "pod.yaml").write_text(POD)
    file = tmp_path / name
    file.write_text(text)

    for path in (file, tmp_path):
        with pytest.raises(InputError, match=problem) as refused:
            read_manifests([str(path)])
        assert str(refused.value).startswith(str(file))


@pytest.mark.parametrize("name", ["p.yaml.gz", "p.json.gz"])
def test_packed_files_are_read(tmp_path: Path, name: str) -> None:
    """From folders and standard input, too."""
    text = POD if "yaml" in name else '{"apiVersion": "v1", "kind": "List", "items": []}'
    packed = gzip.compress(text.encode())
    (tmp_path / name).write_bytes(packed)

    expected = read_manifests(["-"], io.BytesIO(text.encode()))
    assert read_manifests([str(tmp_path)]) == expected
    assert read_manifests(["-"], io.BytesIO(packed)) == expected

    (tmp_path / name).write_bytes(packed[:-9])
    with pytest.raises(InputError, match="cannot be unpacked by gzip"):
        read_manifests([str(tmp_path)])


class Terminal(io.StringIO):
    """A terminal that keeps what is written to it."""

    def isatty(self) -> bool:
        return True


def test_progress_is_shown_at_a_terminal_after_a_while() -> None:
    """The progress line is deleted at the end."""
    terminal, pipe, clock = Terminal(), io.StringIO(), VirtualClock(0.0)
    shown, unseen = ReadingProgress(terminal, clock), ReadingProgress(pipe, clock)
    for progress in (shown, unseen):
        progress.show("a.yaml", 1 << 20, 40 << 20)
    assert terminal.getvalue() == ""

    clock.advance_to(PATIENCE_S + 1)
    for progress in (shown, unseen):
        progress.show("a.yaml", 12 << 20, 40 << 20)
        progress.end()
    assert "reading a.yaml: 12 of 40 MiB" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\033[K")
    assert pipe.getvalue() == ""
