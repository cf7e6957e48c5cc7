"""Write the generated pages into a folder: ``python -m docs.generate FOLDER``."""

import argparse
import shutil
from collections.abc import Mapping
from pathlib import Path

from docs.generate import commands, deployment, metrics, objects, settings, states, support


def pages() -> Mapping[str, str]:
    """Return every generated page by its path below the folder."""
    made = {
        "labels.md": objects.labels(),
        "annotations.md": objects.annotations(),
        "resource-names.md": objects.resource_names(),
        "slo-controller-config.md": objects.slo_controller_config(),
        "scheduler-configuration.md": settings.scheduler_configuration(),
        "scheduler-plugins.md": settings.scheduler_plugins(),
        "descheduler-configuration.md": settings.descheduler_configuration(),
        "descheduler-plugins.md": settings.descheduler_plugins(),
        "feature-gates.md": settings.feature_gates(),
        "environment-variables.md": commands.environment_variables(),
        "metrics.md": metrics.metrics(),
        "event-reasons.md": states.event_reasons(),
        "conditions.md": states.conditions(),
        "compatibility.md": support.compatibility(),
        "chart-values.md": deployment.chart_values(),
        "rights.md": deployment.rights(),
        "webhooks.md": deployment.webhooks(),
    }
    made |= {f"resources/{name}.md": text for name, text in objects.custom_resources()}
    made |= {f"commands/{name}.md": text for name, text in commands.commands()}
    return made


def write_pages(folder: Path) -> None:
    """Write the pages into a folder, from which earlier ones are removed.

    Raises FileExistsError if it has other files.
    """
    made = pages()
    if folder.exists() and any(folder.iterdir()):
        if not (folder / next(iter(made))).exists():
            raise FileExistsError(f"{folder} has files that are no generated pages")
        shutil.rmtree(folder)
    for path, text in made.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m docs.generate", description=__doc__)
    parser.add_argument("folder", type=Path)
    write_pages(parser.parse_args().folder)
