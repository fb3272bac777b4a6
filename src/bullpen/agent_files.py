"""The agents' own files of a home: finding, listing and loading them.

Also what only several files together can tell: whether the role is there, and whether a port is
claimed twice. Other files are looked at for their port alone, so that a mistake in one of them
never stops this agent.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from bullpen import roles
from bullpen.check import check, raise_if_any
from bullpen.errors import BullpenError, Kind
from bullpen.files import write_atomically
from bullpen.model.agent_file import AgentFile
from bullpen.model.names import check_name
from bullpen.named_files import files_in, name_problem, names_in
from bullpen.paths import Home, absolute, person_home
from bullpen.suggest import did_you_mean
from bullpen.yamlfile import Document, Problem, parse, read


def list_agent_files(home: Home) -> list[str]:
    """Names of the agents that have a file, in order. Files whose name is none are left out."""
    return names_in(home.agents, "agent")


def load_agent_file(home: Home, name: str) -> AgentFile:
    """The agent's file, or one error that lists everything wrong with it."""
    path = home.agents / f"{check_name('agent', name)}.yaml"
    known = list_agent_files(home)
    if name not in known:
        near = did_you_mean(name, known)
        raise BullpenError(
            f"no file for an agent called {name}"
            + (near or f" · there are {', '.join(known) or 'none'}"),
            hint=f"bullpen agent start {name} --role ROLE · or write {path}: `role: NAME`",
            kind=Kind.NOT_FOUND,
        )
    found, problems = check_agent_document(read(path), home)
    raise_if_any(f"agent {name}", problems, f"bullpen validate {path}")
    assert found is not None
    return found


def write_agent_file(home: Home, name: str, fields: Mapping[str, object]) -> AgentFile:
    """Another file in place of the agent's; everything that would be wrong with it is raised, and
    then nothing is written."""
    path = home.agents / f"{check_name('agent', name)}.yaml"
    # JSON is YAML: no second way to write it, and none that could be read otherwise.
    text = json.dumps(fields, indent=2, ensure_ascii=True) + "\n"
    found, problems = check_agent_document(parse(path, text), home)
    raise_if_any(f"agent {name}", problems)
    assert found is not None
    try:
        write_atomically(path, text, mode=0o600)
    except OSError as error:
        raise BullpenError(
            f"cannot write {path}: {error.strerror}",
            hint="the file is as it was",
            kind=Kind.UNAVAILABLE,
        ) from error
    return found


def session_directory(home: Home, name: str, file: AgentFile) -> Path:
    """Where the working directories of its conversations are."""
    if file.session_dir is None:
        return home.session(name) / "work"
    return absolute(file.session_dir, home.root, person_home())


def check_agent_document(
    document: Document, home: Home | None
) -> tuple[AgentFile | None, list[Problem]]:
    """The file's contents and everything wrong with them; `home` is the one that it lies in."""
    found, problems = check(AgentFile, document)
    wrong_name = name_problem(document.path, "agent")
    if wrong_name:
        problems.insert(0, wrong_name)
    if found is not None and home is not None:
        problems += [
            Problem(document.path, document.line(where), ".".join(where), message)
            for where, message in _across(found, document.path, home)
        ]
        problems.sort(key=lambda problem: problem.line)
    return (None if problems else found), problems


def claimed_ports(home: Home) -> Iterator[tuple[Path, int]]:
    """Every port that a file of the home asks for, right or wrong otherwise."""
    # A director may be a directory, as a role may.
    inner = sorted(home.directors.glob("*/*.yaml"))
    for path in (home.config_file, *files_in(home.agents), *files_in(home.directors), *inner):
        data = read(path).data
        port = data.get("port") if isinstance(data, Mapping) else None
        if isinstance(port, int) and not isinstance(port, bool):
            yield path, port


def _across(file: AgentFile, path: Path, home: Home) -> Iterator[tuple[tuple[str, ...], str]]:
    """What the other files of the home say against this one."""
    known = {found.name: found for found in roles.list_roles(home.roles)}
    if file.role not in known:
        yield ("role",), f"no role called {file.role}{did_you_mean(file.role, known)}"
    elif file.claude.model is not None:
        data = read(known[file.role].path).data
        engine = data.get("agent_type") if isinstance(data, Mapping) else None
        if engine not in (None, "claude"):
            message = f"is for Claude, and role {file.role} is {engine}'s · set it in the role"
            yield ("claude", "model"), message
    for other, port in claimed_ports(home):
        if port == file.port and not _is_same(other, path):
            shown = other.relative_to(home.root)
            yield ("port",), f"{port} is the port of {shown} already · choose another"


def _is_same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()
