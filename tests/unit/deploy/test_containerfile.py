"""The Containerfile of the image, checked without building it."""

import json
import re
import tomllib
from pathlib import PurePosixPath

from tests.unit.deploy.installed import ROOT, scheduler_container, scheduler_pod

from koordinator.cli.main import PROGRAMS

TEXT = (ROOT / "Containerfile").read_text("utf-8").replace("\\\n", "")
INSTRUCTIONS = [line.split(maxsplit=1) for line in TEXT.splitlines() if re.match(r"[A-Z]+ ", line)]


def only(instruction: str) -> str:
    """Return the argument of an instruction that stands there once."""
    (argument,) = (text for name, text in INSTRUCTIONS if name == instruction)
    return argument


def copied() -> set[str]:
    """Return the files and folders that come from the repository."""
    arguments = [text.split() for name, text in INSTRUCTIONS if name == "COPY"]
    return {source for words in arguments if words[0][:2] != "--" for source in words[:-1]}


def test_build_context_has_exactly_the_copied_files() -> None:
    """The ignore file includes exactly the files that the recipe copies."""
    let_through = {
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines()
        if line.startswith("!")
    }

    assert copied() == let_through
    assert all((ROOT / source).exists() for source in copied())


def test_build_backend_finds_the_files_that_it_reads() -> None:
    """Readme and licence are part of the wheel's metadata, pages of the help part of the wheel."""
    configuration = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    project = configuration["project"]
    included = configuration["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]

    read = {"pyproject.toml", "src", project["readme"], *project["license-files"], *included}
    assert read == copied() - {"requirements"}


def test_the_base_image_is_pinned_to_releases() -> None:
    """Two builds differ at most in fixes: the releases of Python and Debian are fixed."""
    assert re.fullmatch(r"PYTHON=docker\.io/library/python:3\.\d+-slim-[a-z]+", only("ARG"))


def test_the_image_runs_our_command() -> None:
    """The arguments of the pod are arguments of ``koord``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (command,) = json.loads(only("ENTRYPOINT"))

    assert command in project["scripts"]


def test_programs_of_the_original_are_there_by_their_names() -> None:
    """The original's Deployments run with this image and no other change."""
    (names,) = re.findall(r"for program in (.*); do ln -s", TEXT)

    assert set(names.split()) == set(PROGRAMS)


def test_the_user_is_the_one_of_the_pod() -> None:
    """The user is a number: the kubelet can't check whether a name is root."""
    pod = scheduler_pod()["securityContext"]

    default, node = (text for name, text in INSTRUCTIONS if name == "USER")
    assert default == f"{pod['runAsUser']}:{pod['runAsGroup']}"
    assert node == "0:0"
    assert INSTRUCTIONS[-1] == ["FROM", "koordinator"]


def test_compiled_kernels_are_kept_where_the_pod_may_write() -> None:
    """Numba refuses to compile where it can't write, be the cache complete or not."""
    (folder,) = re.findall(r"NUMBA_CACHE_DIR=(\S+)", only("ENV"))
    writable = {volume["name"] for volume in scheduler_pod()["volumes"] if "emptyDir" in volume}
    mounted = [
        PurePosixPath(mount["mountPath"])
        for mount in scheduler_container()["volumeMounts"]
        if mount["name"] in writable
    ]

    assert any(PurePosixPath(folder).is_relative_to(path) for path in mounted)
