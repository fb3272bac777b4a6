"""`directors/<name>.yaml`: what every director's file has, and which types of directors there are.

Called by `bullpen director`, `bullpen validate` and `process`. Each type has its own keys besides
(`config_type` of its class). Imports a type's module only when a file names it.
"""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import AfterValidator

from bullpen.component.config import ComponentConfig
from bullpen.errors import BullpenError, Kind
from bullpen.home.agent_files import port_problem
from bullpen.home.check import check, raise_if_any
from bullpen.home.named_files import files_in
from bullpen.home.paths import Home
from bullpen.home.settings import Discovery
from bullpen.home.yamlfile import Document, FileProblem, read
from bullpen.model import names
from bullpen.suggest import did_you_mean

if TYPE_CHECKING:
    from bullpen.directors.director import Director

# type -> where its class is. A new type is one line here.
TYPES = {
    "claude": "bullpen.directors.manager.director:Manager",
    "github": "bullpen.directors.forge.director:GitHubDirector",
    "gitlab": "bullpen.directors.forge.director:GitLabDirector",
    "scheduler": "bullpen.directors.scheduler.director:Scheduler",
}


def check_director_name(name: str) -> str:
    """The name, if a director may have it."""
    if name == "web":
        raise BullpenError("web is the view's name", hint="choose another name")
    return names.check_name("director", name)


def _check_own_name(text: str) -> str:
    try:
        return check_director_name(text)
    except BullpenError as error:
        raise ValueError(error.message) from error


class DirectorConfig(ComponentConfig):
    """The keys that every director's file may have. `name` is that of the file."""

    type: str
    name: Annotated[str, AfterValidator(_check_own_name)] | None = None
    autostart: bool = False
    discovery: Discovery | None = None

    def problems(self, home: Home, name: str) -> Iterator[tuple[str, str]]:
        """What other files of the home say against that director: keys and messages."""
        del home, name
        yield from ()

    def notes(self, home: Home) -> Iterator[str]:
        """What is no error, and that a person should know who starts it."""
        del home
        yield from ()

    def leading_agent(self, name: str) -> tuple[str, str] | None:
        """The agent that has to run for it, and its role; None: whoever is there."""
        del name
        return None


def config_file(home: Home, name: str) -> Path:
    """What a person writes."""
    return home.directors / f"{check_director_name(name)}.yaml"


def director_type(name: str) -> "type[Director[Any, Any, Any, Any]]":
    """The class of that type of directors, which is in TYPES."""
    module, _, kind = TYPES[name].partition(":")
    return cast("type[Director[Any, Any, Any, Any]]", getattr(import_module(module), kind))


def list_directors(home: Home) -> list[str]:
    """The names of all files, right or wrong."""
    return [path.stem for path in files_in(home.directors)]


def load_director(
    home: Home, name: str
) -> "tuple[type[Director[Any, Any, Any, Any]], DirectorConfig]":
    """The class and the config of one director. Raises with line and key of each mistake."""
    path = config_file(home, name)
    if not path.exists():
        raise BullpenError(
            f"no director called {name}{did_you_mean(name, list_directors(home))}",
            hint=f"bullpen director list · bullpen director init TYPE {name}",
            kind=Kind.NOT_FOUND,
        )
    config, problems = check_director_document(read(path), home)
    raise_if_any(f"director {name}", problems)
    assert config is not None
    return director_type(config.type), config


def check_director_document(
    document: Document, home: Home | None
) -> tuple[DirectorConfig | None, list[FileProblem]]:
    """The file's contents and everything wrong with them; `home` is the one that it lies in."""
    if not isinstance(document.data, dict):
        return check(DirectorConfig, document)
    type_name = document.data.get("type")
    if not isinstance(type_name, str) or type_name not in TYPES:
        return None, [*document.problems, _wrong_type(document, type_name)]
    kind = cast("type[DirectorConfig]", director_type(type_name).config_type)
    config, problems = check(kind, document)
    if config is not None:
        problems += [
            FileProblem(document.path, document.line((key,)), key, message)
            for key, message in _across(config, document.path, home)
        ]
    return (None if problems else config), problems


def _wrong_type(document: Document, type_name: object) -> FileProblem:
    allowed = f"one of {', '.join(sorted(TYPES))}"
    if type_name is None:
        return FileProblem(
            document.path, document.line(("type",)), "type", f"is required · {allowed}"
        )
    near = did_you_mean(type_name, TYPES) if isinstance(type_name, str) else ""
    message = f'"{str(type_name)[:60]}" is no type of directors{near} · {allowed}'
    return FileProblem(document.path, document.line(("type",)), "type", message)


def _across(config: DirectorConfig, path: Path, home: Home | None) -> Iterator[tuple[str, str]]:
    """What the file's own name and the other files of the home say against it."""
    try:
        check_director_name(path.stem)
    except BullpenError as error:
        yield "name", f"{error.message} · {error.hint}"
    if config.name is not None and config.name != path.stem:
        yield "name", f'"{config.name}" is not the name of the file · {path.stem}, or leave it out'
    if home is None:
        return
    if config.port is not None and (taken := port_problem(config.port, path, home)):
        yield "port", taken
    yield from config.problems(home, path.stem)
