"""The whole prompt of a task: instructions, project, messages, and what the caller wrote.

Reads the instructions that ship with Bullpen, or the home's own in their place.
"""

from collections.abc import Sequence
from importlib import resources
from typing import Literal

from bullpen.errors import BullpenError, Kind
from bullpen.home.paths import Home
from bullpen.model.task import Context

Kinds = Literal["agent", "director"]
MOST_BYTES = 1 << 18


def load_instructions(home: Home, kind: Kinds) -> str:
    """The home's own if it has such a file, else what ships."""
    own = home.instructions / f"{kind}.md"
    try:
        raw = own.read_bytes()
    except FileNotFoundError:
        return resources.files("bullpen").joinpath(f"instructions/{kind}.md").read_text("utf-8")
    except OSError as error:
        raise BullpenError(
            f"cannot read {own}: {error.strerror}", hint="mend or remove it", kind=Kind.CONFLICT
        ) from error
    if len(raw) > MOST_BYTES:
        raise BullpenError(f"{own} has more than {MOST_BYTES} bytes", kind=Kind.CONFLICT)
    return raw.decode("utf-8", "replace")


def assemble(
    prompt: str,
    instructions: str = "",
    project: Context | None = None,
    messages: Sequence[str] = (),
) -> str:
    """All of it, in the order in which it is read. Pure."""
    context = f"Project {project.name}:\n{project.prompt}".rstrip() if project else ""
    parts = (instructions, context, *messages, prompt)
    return "\n\n".join(part.strip("\n") for part in parts if part.strip())
