"""The file system of the released image."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.e2e.released_image import Image


@dataclass(frozen=True)
class Root:
    """The unpacked image, whose programs run in it as the image's user."""

    folder: Path
    image: Image

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a program with the image's environment."""
        chroot = shutil.which("chroot") or "chroot"
        user = f"--userspec={self.image.settings['User']}"
        return subprocess.run(
            [chroot, user, str(self.folder), *command],
            env=dict(each.split("=", 1) for each in self.image.settings["Env"]),
            capture_output=True,
            text=True,
            check=False,
        )

    def koord(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the entry point."""
        return self.run(*self.image.settings["Entrypoint"], *arguments)


@pytest.fixture(scope="session")
def root(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Root:
    """Unpack the image."""
    folder = tmp_path_factory.mktemp("root")
    folder.chmod(0o755)
    image.unpack(folder)
    return Root(folder, image)
