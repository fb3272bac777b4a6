"""The project files of a home: finds, lists, loads and checks them.

The same directory holds clones of repositories; this module does not touch those.
"""

from bullpen.errors import BullpenError, Kind
from bullpen.home.check import check, raise_if_any
from bullpen.home.named_files import name_problem, names_in
from bullpen.home.paths import Home
from bullpen.home.yamlfile import Document, FileProblem, read
from bullpen.model.names import check_name
from bullpen.model.project import Project
from bullpen.suggest import did_you_mean


def list_projects(home: Home) -> list[str]:
    """Names of the projects that have a file, in order."""
    return names_in(home.projects, "project")


def load_project(home: Home, name: str) -> Project:
    """The project, or one error that lists everything wrong with its file."""
    path = home.projects / f"{check_name('project', name)}.yaml"
    known = list_projects(home)
    if name not in known:
        near = did_you_mean(name, known)
        raise BullpenError(
            f"no project called {name}" + (near or f" · there are {', '.join(known) or 'none'}"),
            hint=f"write {path}, with `name` and `prompt`",
            kind=Kind.NOT_FOUND,
        )
    project, problems = check_project_document(read(path))
    raise_if_any(f"project {name}", problems, f"bullpen validate {path}")
    assert project is not None
    return project


def check_project_document(document: Document) -> tuple[Project | None, list[FileProblem]]:
    """The project and everything wrong with it; its name must be the file's."""
    project, problems = check(Project, document)
    wrong = name_problem(document.path, "project")
    if wrong:
        problems.insert(0, wrong)
    elif project is not None and project.name != document.path.stem:
        message = f'"{project.name}" is not the name of the file · name: {document.path.stem}'
        problems.append(FileProblem(document.path, document.line(("name",)), "name", message))
    return (None if problems else project), problems
