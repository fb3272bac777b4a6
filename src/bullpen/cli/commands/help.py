"""`bullpen help`: the same as `--help`, for who asks for it by a word."""

import click


@click.command()
@click.argument("words", nargs=-1, metavar="[VERB]...")
def command(words: tuple[str, ...]) -> None:
    """Say more about a command, e.g. help worktree create."""
    from bullpen.cli.main import run

    raise click.exceptions.Exit(run([*words, "--help"]))
