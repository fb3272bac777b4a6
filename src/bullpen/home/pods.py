"""The pod templates of a home: finds, lists, loads and checks them."""

from collections.abc import Collection
from pathlib import Path

from bullpen.errors import BullpenError, Kind
from bullpen.home.check import check, raise_if_any
from bullpen.home.yamlfile import Document, FileProblem, read
from bullpen.model.names import check_name
from bullpen.model.pod import PodTemplate
from bullpen.suggest import did_you_mean


def list_templates(directory: Path) -> list[Path]:
    """All template files by name."""
    return sorted(path for path in directory.glob("*.yaml") if not path.name.startswith("."))


def load_template(name: str, directory: Path) -> PodTemplate:
    """The template, or one error that lists everything wrong with it."""
    path = directory / f"{check_name('template', name)}.yaml"
    known = [path.stem for path in list_templates(directory)]
    if name not in known:
        near = did_you_mean(name, known)
        raise BullpenError(
            f"no pod template called {name}"
            + (near or f" · there are {', '.join(known) or 'none'}"),
            hint="bullpen pod templates",
            kind=Kind.NOT_FOUND,
        )
    template, problems = check(PodTemplate, read(path))
    raise_if_any(f"pod template {name}", problems, f"bullpen validate {path}")
    assert template is not None
    return template


def check_template(
    document: Document, roles: Collection[str] | None = None
) -> tuple[PodTemplate | None, list[FileProblem]]:
    """The template and everything wrong with it; `roles` names those its agents may have."""
    template, problems = check(PodTemplate, document)
    if template is not None and roles is not None:
        problems = [
            FileProblem(
                document.path,
                document.line(("agents", number, "role")),
                f"agents.{number}.role",
                f"no role called {entry.role}{did_you_mean(entry.role, roles)}",
            )
            for number, entry in enumerate(template.agents)
            if entry.role not in roles
        ]
    return (None if problems else template), problems
