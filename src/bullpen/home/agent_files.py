"""The files `agents/<name>.yaml` of a home: lists, loads, checks and writes them.

Also checks what only several files show: whether the role exists, and whether a port is claimed
twice. Of other files only the port is read, so that an error in one does not stop this agent.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from bullpen.errors import BullpenError, Kind
from bullpen.files import write_atomically
from bullpen.home import roles
from bullpen.home.check import check, raise_if_any
from bullpen.home.hub_file import read_hub_file
from bullpen.home.named_files import files_in, name_problem, names_in
from bullpen.home.paths import Home, absolute, person_home
from bullpen.home.yaml_edit import edited
from bullpen.home.yamlfile import Document, FileProblem, parse, read
from bullpen.model.agent_file import AgentFile
from bullpen.model.names import check_name
from bullpen.suggest import did_you_mean


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
    file, problems = check_agent_document(read(path), home)
    raise_if_any(f"agent {name}", problems, f"bullpen validate {path}")
    assert file is not None
    return file


def write_agent_file(home: Home, name: str, fields: Mapping[str, object]) -> AgentFile:
    """Another file in place of the agent's; everything that would be wrong with it is raised, and
    then nothing is written."""
    path = home.agents / f"{check_name('agent', name)}.yaml"
    # JSON is YAML, and none that could be read otherwise.
    text = json.dumps(fields, indent=2, ensure_ascii=True) + "\n"
    file, problems = check_agent_document(parse(path, text), home)
    raise_if_any(f"agent {name}", problems)
    assert file is not None
    try:
        write_atomically(path, _in_its_form(path, file, fields) or text, mode=0o600)
    except OSError as error:
        raise BullpenError(
            f"cannot write {path}: {error.strerror}",
            hint="the file is as it was",
            kind=Kind.UNAVAILABLE,
        ) from error
    return file


def _in_its_form(path: Path, file: AgentFile, fields: Mapping[str, object]) -> str:
    """The fields in the file's own form, with its comments and without what it left out because
    that is the default; empty if that would say anything else."""
    before = read(path)
    if before.problems or not isinstance(before.data, dict):
        return ""
    old, _problems = check(AgentFile, before)
    named = {
        key: before.data[key] if _is_unchanged(old, file, key) and key in before.data else value
        for key, value in fields.items()
        if key in before.data or not _is_unchanged(old, file, key)
    }
    text = edited(path.read_text(), named)
    again, problems = check(AgentFile, parse(path, text))
    return text if again == file and not problems else ""


def _is_unchanged(old: AgentFile | None, new: AgentFile, key: str) -> bool:
    return old is not None and getattr(old, key, None) == getattr(new, key, None)


def session_directory(home: Home, name: str, file: AgentFile) -> Path:
    """Where the working directories of its conversations are."""
    if file.session_dir is None:
        return home.session(name) / "work"
    return absolute(file.session_dir, home.root, person_home())


def check_agent_document(
    document: Document, home: Home | None
) -> tuple[AgentFile | None, list[FileProblem]]:
    """The file's contents and everything wrong with them; `home` is the one that it lies in."""
    file, problems = check(AgentFile, document)
    wrong_name = name_problem(document.path, "agent")
    if wrong_name:
        problems.insert(0, wrong_name)
    if file is not None and home is not None:
        problems += [
            FileProblem(document.path, document.line(where), ".".join(where), message)
            for where, message in _across(file, document.path, home)
        ]
        problems.sort(key=lambda problem: problem.line)
    return (None if problems else file), problems


def claimed_ports(home: Home, but: Path | None = None) -> Iterator[tuple[Path, int]]:
    """Every port that a file of the home asks for, right or wrong otherwise; `but` is not read."""
    # A director may be a directory, as a role may.
    inner = sorted(home.directors.glob("*/*.yaml"))
    for path in (home.config_file, *files_in(home.agents), *files_in(home.directors), *inner):
        if but is not None and _is_same(path, but):
            continue
        data = read(path).data
        port = data.get("port") if isinstance(data, Mapping) else None
        if isinstance(port, int) and not isinstance(port, bool):
            yield path, port


def _across(file: AgentFile, path: Path, home: Home) -> Iterator[tuple[tuple[str, ...], str]]:
    """What the other files of the home say against this one."""
    known = {role.name: role for role in roles.list_roles(home.roles)}
    if file.role not in known:
        yield ("role",), f"no role called {file.role}{did_you_mean(file.role, known)}"
    elif file.claude.model is not None:
        data = read(known[file.role].path).data
        engine = data.get("agent_type") if isinstance(data, Mapping) else None
        if engine not in (None, "claude"):
            message = f"is for Claude, and role {file.role} is {engine}'s · set it in the role"
            yield ("claude", "model"), message
    if file.port is not None and (taken := port_problem(file.port, path, home)):
        yield ("port",), taken


def port_problem(port: int, path: Path, home: Home) -> str:
    """Who else has the port that the file at `path` asks for; empty: nobody."""
    if port == read_hub_file(home).port:
        return f"{port} is the hub's port (hub.json) · choose another"
    others = (other for other, claimed in claimed_ports(home, but=path) if claimed == port)
    other = next(others, None)
    shown = other.relative_to(home.root) if other is not None else ""
    return f"{port} is the port of {shown} already · choose another" if shown else ""


def _is_same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()
