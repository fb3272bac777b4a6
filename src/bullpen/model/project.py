"""A project: the text that all its tasks get, and where its code is. Pure."""

import re
from typing import Annotated

from pydantic import AfterValidator, ValidationInfo, field_validator

from bullpen.errors import BullpenError
from bullpen.model.fields import Block, Text
from bullpen.model.landing_rules import LandingRules
from bullpen.model.names import check_name

# Others (`ext::`, or a remote helper's name) make git execute what stands behind them, and a host
# that begins with - would be an option of ssh.
URL = re.compile(r"(?:https?|ssh|git|file)://(?:(?P<user>[^/\s@]*)@)?(?:(?!-)[^/\s@]*)/\S+")
REMOTE = re.compile(r"(?:[A-Za-z0-9._-]+@)?[A-Za-z0-9][A-Za-z0-9.-]*:(?!:)[^\s-]\S*")


def _check_project_name(name: str) -> str:
    try:
        return check_name("project", name)
    except BullpenError as error:
        raise ValueError(f"{error.message} · {error.hint}") from error


def check_repository(text: str) -> str:
    """A repository as git may be given it: a path from / or ~, or an address without a password."""
    if _is_path(text):
        return text
    url = URL.fullmatch(text)
    if url is None and ("://" in text or REMOTE.fullmatch(text) is None):
        raise ValueError(
            "is no repository · a path from / or ~/, https://host/path, or git@host:path"
        )
    user = (url["user"] or "") if url else ""
    if ":" in user or (user and text.startswith("http")):
        raise ValueError("holds a credential · leave it out, and give it to git (gitcredentials)")
    return text


def check_directory(text: str) -> str:
    """A directory that means the same from wherever one looks."""
    if not _is_path(text):
        raise ValueError("is no path from / or ~/")
    return text


def _is_path(text: str) -> bool:
    return text.startswith(("/", "~/")) and text.isprintable() and ".." not in text.split("/")


class Project(Block):
    """The whole file."""

    name: Annotated[str, AfterValidator(_check_project_name)]
    prompt: Text
    repo: Annotated[str, AfterValidator(check_repository)] | None = None
    workdir: Annotated[str, AfterValidator(check_directory)] | None = None
    landing: LandingRules | None = None

    @field_validator("workdir")
    @classmethod
    def _one_place(cls, workdir: str | None, info: ValidationInfo) -> str | None:
        if workdir and info.data.get("repo"):
            raise ValueError("only one of repo and workdir")
        return workdir
