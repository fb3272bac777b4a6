"""Lists files called `<name>.yaml` and checks the names."""

from pathlib import Path

from bullpen.errors import BullpenError
from bullpen.home.yamlfile import FileProblem
from bullpen.model.names import check_name


def files_in(directory: Path) -> list[Path]:
    """The YAML files of a directory by name; none where there is no such directory."""
    return sorted(
        path
        for path in directory.glob("*.yaml")
        if not path.name.startswith(".") and not path.is_dir()
    )


def names_in(directory: Path, noun: str) -> list[str]:
    """The names that they give. A file whose name is none is left out."""
    return [path.stem for path in files_in(directory) if name_problem(path, noun) is None]


def name_problem(path: Path, noun: str) -> FileProblem | None:
    """What is wrong with the name that a file gives to what is in it."""
    try:
        check_name(noun, path.stem)
    except BullpenError as error:
        return FileProblem(path, 1, "", f"{error.message} · {error.hint}")
    return None
