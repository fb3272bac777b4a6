"""The role files of a home: finds, lists, loads, checks and extends them.

A role is `<name>.yaml`, or `<name>/role.yaml` with an optional `CLAUDE.md` persona. With a pod in
effect the pod's roles come first. Only what loads a role imports the validation library; listing
does not, because that import is slow.
"""

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import absolute, person_home
from bullpen.home.yamlfile import Document, FileProblem, parse, read
from bullpen.model.names import check_name
from bullpen.suggest import did_you_mean

if TYPE_CHECKING:
    from bullpen.model.role import Role

PERSONA = "CLAUDE.md"
PLAIN_RULE = re.compile(r"[A-Za-z_]+(?:\([A-Za-z0-9./][A-Za-z0-9 ._/-]*\))?")


@dataclass(frozen=True)
class RoleFile:
    """Where a role is written; `rival` is a second file that claims the same name."""

    name: str
    path: Path
    is_pod_role: bool = False
    rival: Path | None = None

    @property
    def persona(self) -> Path | None:
        """The persona beside a role that is a directory."""
        path = self.path.with_name(PERSONA)
        return path if self.path.name == "role.yaml" and path.is_file() else None


@dataclass(frozen=True)
class Summary:
    """A role as a list shows it."""

    file: RoleFile
    description: str
    is_broken: bool


def list_roles(roles: Path, pod_roles: Path | None = None) -> list[RoleFile]:
    """All role files by name; a pod's role stands before the one of the same name it hides."""
    files = [*_files(roles, is_pod=False)]
    if pod_roles is not None:
        files += _files(pod_roles, is_pod=True)
    return sorted(files, key=lambda file: (file.name, not file.is_pod_role))


def find_role(name: str, roles: Path, pod_roles: Path | None = None) -> RoleFile:
    """The file that the name means; `pod_roles` is given when a pod is in effect."""
    check_name("role", name)
    known = list_roles(roles, pod_roles)
    for file in known:
        if file.name == name:
            _refuse_rival(file)
            return file
    names = sorted({file.name for file in known})
    near = did_you_mean(name, names)
    raise BullpenError(
        f"no role called {name}" + (near or f" · there are {', '.join(names) or 'none'}"),
        hint=f"bullpen role list · bullpen role init {name}",
        kind=Kind.NOT_FOUND,
    )


def load_role(file: RoleFile) -> "Role":
    """The role, or one error that lists everything wrong with its file."""
    from bullpen.home.check import raise_if_any

    _refuse_rival(file)
    role, problems = check_role(file)
    raise_if_any(f"role {file.name}", problems, f"bullpen role check {file.name}")
    assert role is not None
    return role


def load_persona(file: RoleFile) -> str:
    """What stands in the role's persona; empty if it has none."""
    path = file.persona
    if path is None:
        return ""
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BullpenError(
            f"cannot read the persona {path}: {why}", hint="mend or remove it", kind=Kind.CONFLICT
        ) from error


def text_with_rule(file: RoleFile, rule: str) -> str:
    """The role's file with one more thing that is allowed, and nothing else changed. Refuses what
    is not a right role, before or then."""
    from bullpen.home.check import raise_if_any

    load_role(file)  # says what is wrong before it is touched
    document = read(file.path)
    text = file.path.read_text(encoding="utf-8")
    for changed in (_inserted(document, text, rule), _rewritten(text, rule)):
        reread = parse(file.path, changed)
        if reread.data == _allowing(document.data, rule):
            role, problems = check_role_document(reread, file.name)
            raise_if_any(f"role {file.name}", problems, f"bullpen role check {file.name}")
            assert role is not None
            return changed
    raise BullpenError(
        f"the rule {rule} cannot be added to {file.path}",
        hint="add it by hand, under permissions.allow",
        kind=Kind.UNSUPPORTED,
    )


def _allowing(data: dict[str, Any], rule: str) -> dict[str, Any]:
    """What the file has to mean."""
    permissions = data.get("permissions") or {}
    allowed = permissions.get("allow") or []
    more = [] if rule in allowed else [rule]
    return {**data, "permissions": {**permissions, "allow": [*allowed, *more]}}


def _inserted(document: Document, text: str, rule: str) -> str:
    """A line after the last rule, or the first lines of such a list. Right for block style; what
    else there is shows when it is read again."""
    permissions = document.data.get("permissions") or {}
    allowed = permissions.get("allow") or []
    if rule in allowed:
        return text
    quoted = rule if PLAIN_RULE.fullmatch(rule) else json.dumps(rule)
    lines = text.splitlines()
    if allowed:
        number = document.line(("permissions", "allow", len(allowed) - 1))
        indent = lines[number - 1].partition("-")[0]
        lines.insert(number, f"{indent}- {quoted}")
    elif permissions and "allow" not in permissions:
        number = document.line(("permissions", next(iter(permissions))))
        first = lines[number - 1]
        indent = first[: len(first) - len(first.lstrip())]
        lines[number - 1 : number - 1] = [f"{indent}allow:", f"{indent}  - {quoted}"]
    else:
        lines += ["", "permissions:", "  allow:", f"    - {quoted}"]
    return "\n".join(lines) + "\n"


def _rewritten(text: str, rule: str) -> str:
    """By a library that keeps comments and order, though not every indentation."""
    from io import StringIO

    from ruamel.yaml import YAML

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 1 << 20
    yaml.indent(mapping=2, sequence=4, offset=2)
    data = yaml.load(text)
    if not data.get("permissions"):
        data["permissions"] = {}
    if not data["permissions"].get("allow"):
        data["permissions"]["allow"] = []
    data["permissions"]["allow"].append(rule)
    written = StringIO()
    yaml.dump(data, written)
    return written.getvalue()


def check_role(
    file: RoleFile, known: Collection[str] = ()
) -> tuple["Role | None", list[FileProblem]]:
    """The role and everything wrong with its file; `known` names the roles it may refer to."""
    if file.persona is not None and not file.path.exists():
        message = f"missing: a persona needs a role · write there `name: {file.name}`"
        return None, [FileProblem(file.path, 1, "", message)]
    document = read(file.path)
    role, problems = check_role_document(document, file.name)
    if file.rival is not None:
        message = f"there is also {file.rival.parent.name}/{file.rival.name} · remove one of them"
        problems.insert(0, FileProblem(file.path, 1, "", message))
    if role is not None and role.may_grant and known and role.may_grant not in known:
        message = f"no role called {role.may_grant}{did_you_mean(role.may_grant, known)}"
        problems.append(FileProblem(file.path, document.line(("may_grant",)), "may_grant", message))
    return (None if problems else role), problems


def check_role_document(
    document: Document, file_name: str
) -> tuple["Role | None", list[FileProblem]]:
    """The role in a document that was already read; its name must be the file's."""
    from bullpen.home.check import check
    from bullpen.model.role import Role

    role, problems = check(Role, document)
    name = document.data.get("name") if isinstance(document.data, dict) else None
    if name != file_name and isinstance(name, str) and all(p.key != "name" for p in problems):
        message = f'"{name}" is not the name of the file · name: {file_name}'
        problems.append(FileProblem(document.path, document.line(("name",)), "name", message))
        problems.sort(key=lambda problem: problem.line)
    return (None if problems else role), problems


def summaries(roles: Path, pod_roles: Path | None = None) -> list[Summary]:
    """What a list shows, without checking the files any further than that."""
    return [_summary(file) for file in list_roles(roles, pod_roles)]


def resolve_root_dir(role: "Role", invoked_in: Path, home_root: Path) -> Path:
    """The directory the agent works in: `.` is the invoker's, else relative to the home."""
    if Path(role.root_dir) == Path():
        path = invoked_in
    else:
        path = absolute(role.root_dir, home_root, person_home())
    try:
        is_directory = path.is_dir()
    except PermissionError:
        is_directory = False
    if not is_directory:
        raise BullpenError(
            f"root_dir of role {role.name} is no directory that you can enter: {path}",
            hint="make it, or start with --override root_dir=DIR",
            kind=Kind.NOT_FOUND,
        )
    # Resolved, because a worktree's agent works in the same sub-directory of another checkout.
    return path.resolve()


def _files(directory: Path, is_pod: bool) -> Iterator[RoleFile]:
    try:
        entries = sorted(directory.iterdir())
        inside = {path.name: path / "role.yaml" for path in entries if path.is_dir()}
    except (FileNotFoundError, NotADirectoryError):
        return
    except PermissionError as error:
        raise BullpenError(
            f"cannot read {directory}: {error.strerror}", kind=Kind.DENIED
        ) from error
    plain = {p.stem: p for p in entries if p.suffix == ".yaml" and p.name not in inside}
    for name in sorted(plain | inside):
        if not name.startswith("."):
            rival = inside.get(name) if name in plain else None
            yield RoleFile(name, plain.get(name) or inside[name], is_pod, rival)


def _refuse_rival(file: RoleFile) -> None:
    if file.rival is not None:
        raise BullpenError(
            f"role {file.name} is there twice: {file.path} and {file.rival}",
            hint="remove one of the two",
            kind=Kind.CONFLICT,
        )


def _summary(file: RoleFile) -> Summary:
    document = read(file.path)
    data = document.data
    if document.problems or file.rival or not isinstance(data, dict):
        return Summary(file, "", is_broken=True)
    description = data.get("description") or ""
    is_broken = data.get("name") != file.name or not isinstance(description, str)
    return Summary(file, "" if is_broken else description, is_broken)
