"""`bullpen role`: list, show, make and check roles."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from bullpen.cli import output
from bullpen.cli.help_text import Group
from bullpen.errors import BullpenError, Kind
from bullpen.home import roles
from bullpen.home.paths import Home, current_home, short_path
from bullpen.model.names import check_name

# What an unset field means, where "not set" would leave a question.
UNSET = {
    "model": "the engine's choice",
    "permission_mode": "the engine's choice",
    "worktree.branch_from": "the current branch",
    "sandbox.enabled": "on for tasks, off in a terminal",
    "permissions.agent.enabled": "on when it has instructions",
    "may_grant": "what it may itself",
}


def complete_roles(
    _ctx: click.Context | None, _param: click.Parameter | None, incomplete: str
) -> list[str]:
    """Names of roles for the shell; nothing if there is no home."""
    try:
        home = current_home()
        files = roles.list_roles(home.roles, home.pod_roles)
    except (BullpenError, OSError):
        return []
    return sorted({file.name for file in files if file.name.startswith(incomplete)})


@click.group(cls=Group)
def command() -> None:
    """List, show, make and check roles."""


@command.command("list")
@output.json_option
def list_(as_json: bool) -> None:
    """List all roles; those of pods are marked."""
    home = current_home()
    summaries = roles.summaries(home.roles, home.pod_roles)
    if as_json:
        output.write_json({"roles": [_summary_to_json(summary) for summary in summaries]})
        return
    if not summaries:
        output.write("no roles · bullpen role init NAME")
        return
    rows = [
        (
            summary.file.name,
            "pod" if summary.file.is_pod_role else "",
            f"broken · bullpen role check {summary.file.name}"
            if summary.is_broken
            else summary.description,
        )
        for summary in summaries
    ]
    if not any(mark for _, mark, _ in rows):
        output.write_table(["ROLE", "DESCRIPTION"], [(name, text) for name, _, text in rows])
    else:
        output.write_table(["ROLE", "POD", "DESCRIPTION"], rows, drop=("POD",))


@command.command()
@click.argument("name", shell_complete=complete_roles)
@click.option("--pod", is_flag=True, help="As in a pod: pod roles come first.")
@output.json_option
def show(name: str, pod: bool, as_json: bool) -> None:
    """Show all fields of a role, with defaults marked, and its file."""
    home = current_home()
    in_pod = pod or bool(os.environ.get("BULLPEN_POD"))
    if not in_pod:
        _refuse_pod_role(home, name)
    file = roles.find_role(name, home.roles, home.pod_roles if in_pod else None)
    role = roles.load_role(file)
    fields = role.model_dump(mode="json", by_alias=True)
    own = _set_keys(role.model_dump(by_alias=True, exclude_unset=True))
    fields["env"] = dict.fromkeys(role.env, "…")  # people paste this into bug reports
    if as_json:
        output.write_json(
            {
                "file": str(file.path),
                "persona": str(file.persona) if file.persona else None,
                "pod": file.is_pod_role,
                "set": sorted(own),
                "role": fields,
            }
        )
        return
    rows = [("file", short_path(file.path) + ("   (pod role)" if file.is_pod_role else ""))]
    if file.persona:
        rows.append(("persona", short_path(file.persona)))
    output.write_table([], [*rows, ("", ""), *_rows(fields, own)])


def _refuse_pod_role(home: Home, name: str) -> None:
    """One that only pods have; `find_role` would say that there is none."""
    plain, of_pods = (
        {file.name for file in roles.list_roles(directory)}
        for directory in (home.roles, home.pod_roles)
    )
    if name in of_pods - plain:
        raise BullpenError(
            f"{name} is a role of pods alone",
            hint=f"bullpen role show {name} --pod",
            kind=Kind.NOT_FOUND,
        )


@command.command()
@click.argument("name")
@click.option("--from", "source", metavar="ROLE", shell_complete=complete_roles, help="Copy this.")
@output.json_option
def init(name: str, source: str | None, as_json: bool) -> None:
    """Make a role file that explains every field, or a copy of another role."""
    home = current_home()
    check_name("role", name)
    for taken in (home.roles / f"{name}.yaml", home.roles / name):
        if taken.exists() or taken.is_symlink():
            raise BullpenError(
                f"there is already {short_path(taken)}",
                hint="choose another name",
                kind=Kind.CONFLICT,
            )
    path = _write_copy(home, source, name) if source else _write_new(home, name)
    if as_json:
        output.write_json({"name": name, "file": str(path)})
    else:
        output.write(f"{short_path(path)} written · edit it, then: bullpen role check {name}")


@command.command()
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=complete_roles)
@output.json_option
def check(names: tuple[str, ...], as_json: bool) -> None:
    """Check role files: all, or those named. Exit code 1 if anything is wrong."""
    from bullpen.cli.check_report import CheckedFile, report

    home = current_home()
    files = roles.list_roles(home.roles, home.pod_roles)
    known = {file.name for file in files}
    for name in names:
        if name not in known:
            roles.find_role(name, home.roles, home.pod_roles)  # raises, with the nearest name
    results = [
        CheckedFile(
            file.path, str(file.path.relative_to(home.root)), roles.check_role(file, known)[1]
        )
        for file in files
        if not names or file.name in names
    ]
    report(results, "role", as_json)


def _write_new(home: Home, name: str) -> Path:
    from bullpen.home.role_template import new_role

    path = home.roles / f"{name}.yaml"
    _create(path, new_role(name))
    return path


def _write_copy(home: Home, source: str, name: str) -> Path:
    from bullpen.home.role_template import renamed

    file = roles.find_role(source, home.roles)
    roles.load_role(file)  # a broken role is not worth a copy
    text = renamed(file.path.read_bytes().decode(), source, name)
    if file.persona is None:
        path = home.roles / f"{name}.yaml"
    else:
        path = home.roles / name / file.path.name
        path.parent.mkdir()
        _create(path.with_name(file.persona.name), file.persona.read_bytes().decode())
    _create(path, text)
    return path


def _create(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8", newline="") as file:
        file.write(text)


def _summary_to_json(summary: roles.Summary) -> dict[str, object]:
    return {
        "name": summary.file.name,
        "description": summary.description,
        "pod": summary.file.is_pod_role,
        "file": str(summary.file.path),
        "broken": summary.is_broken,
    }


def _set_keys(data: object, prefix: str = "") -> set[str]:
    """The dotted keys in a role's own data, as against those it has by default."""
    if not isinstance(data, dict):
        return set()
    keys = {f"{prefix}{key}" for key in data}
    return keys.union(*(_set_keys(data[key], f"{prefix}{key}.") for key in data))


def _rows(fields: dict[str, Any], own: set[str], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in fields.items():
        label = "  " * prefix.count(".") + key
        if isinstance(value, dict) and value:
            yield label, ""
            yield from _rows(value, own, f"{prefix}{key}.")
        else:
            first, *more = _lines(f"{prefix}{key}", value)
            yield label, first if f"{prefix}{key}" in own else f"{first}   (default)"
            yield from (("", line) for line in more)


def _lines(key: str, value: Any) -> list[str]:
    if value is None:
        return [UNSET.get(key, "not set")]
    if isinstance(value, str):
        return value.splitlines() or ["none"]
    if isinstance(value, list):
        return [_plain(entry) for entry in value] or ["none"]
    return [_plain(value) if value != {} else "none"]


def _plain(value: Any) -> str:
    import json

    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
