"""`bullpen completion`: the script that teaches a shell our verbs and options."""

import os
from pathlib import PurePath

import click
from click.shell_completion import get_completion_class

from bullpen.cli import output
from bullpen.errors import BullpenError

INSTALL = {
    "bash": 'add to ~/.bashrc: eval "$(bullpen completion bash)"',
    # Without compinit, zsh does not know what the script calls.
    "zsh": 'add to ~/.zshrc: autoload -Uz compinit && compinit; eval "$(bullpen completion zsh)"',
    "fish": "bullpen completion fish > ~/.config/fish/completions/bullpen.fish",
}


@click.command()
@click.argument("shell", required=False, type=click.Choice(list(INSTALL)))
def command(shell: str | None) -> None:
    """Print the completion script of your shell; its first comment says how to install it."""
    name = shell or PurePath(os.environ.get("SHELL", "")).name
    completion = get_completion_class(name) if name in INSTALL else None
    if completion is None:
        raise BullpenError(
            f"no completion for the shell {name!r}",
            hint=" · ".join(f"bullpen completion {known}" for known in INSTALL),
        )
    table = click.get_current_context().find_root().command
    script = completion(table, {}, "bullpen", "_BULLPEN_COMPLETE").source()
    output.write(with_comment(script, f"# {INSTALL[name]}").rstrip("\n"))


def with_comment(script: str, comment: str) -> str:
    """The script with the comment on top, but below zsh's #compdef, which has to come first."""
    first, rest = script.split("\n", 1)
    if first.startswith("#compdef"):
        return f"{first}\n{comment}\n{rest}"
    return f"{comment}\n{script}"
