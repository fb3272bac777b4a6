"""Asks a person once whether agents may use the code that a repository brings, and says what is
not used. Called by `bullpen run`."""

import os
import sys
from collections.abc import Sequence

import click

from bullpen.cli import output
from bullpen.errors import BullpenError
from bullpen.home import trust
from bullpen.home.paths import current_directory, current_home, person_home, short_path


def ask_once(role_name: str, pod: str, overrides: Sequence[str]) -> None:
    """Before a start from a terminal. What is wrong with the role, the hub says."""
    from bullpen.engines import get_engine
    from bullpen.engines.trusted import find_untrusted, top_of
    from bullpen.home.overrides import load_changed_role
    from bullpen.home.roles import resolve_root_dir

    if os.environ.get("BULLPEN_ACTOR"):  # an agent answers no question that is the person's
        return
    home, person = current_home(), person_home()
    try:
        role = load_changed_role(home, role_name, pod, overrides)
        directory = resolve_root_dir(role, current_directory(), home.root)
        engine = get_engine(role.agent_type)
        code = find_untrusted(engine, home, person, os.environ, directory)
        top = top_of(home, directory).resolve()
        if not code or trust.is_declined(home, top):
            return
        trust.refuse_too_wide(top, person)
    except BullpenError:
        return
    lines = (f"{short_path(top)} brings {', '.join(code)}.", "It runs with your rights. Use it?")
    if click.confirm(output.printable("\n".join(lines), lines=True), err=True):
        trust.add(home, top)
    else:
        trust.decline(home, top)


def tell_not_used(names: Sequence[str]) -> None:
    """On standard error: it is no part of what a script reads."""
    if names:
        sys.stderr.write(f"not used: {output.printable(', '.join(names))} · bullpen trust\n")
