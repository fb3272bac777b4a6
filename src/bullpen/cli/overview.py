"""`bullpen` alone: the agents of this home and the next steps, or how to begin."""

from bullpen.cli import output
from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import current_home

NEXT = "Next: bullpen run --role ROLE · bullpen attach NAME · bullpen help"
BEGIN = """Bullpen runs a team of AI coding agents on your code. There is no home for them here yet.
Begin: bullpen init, in your repository · then bullpen doctor · bullpen help"""


def show_overview() -> None:
    """What a person who looks around wants to see."""
    try:
        current_home()
    except BullpenError as error:
        if error.kind is not Kind.NOT_FOUND:
            raise
        output.write(BEGIN)
        return
    from bullpen.cli.commands.list import show_list

    show_list()
    output.write(NEXT)
