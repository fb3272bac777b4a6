"""The command line that runs a module of Bullpen, in the Python that Bullpen is installed for.

Used wherever we start Python for more than the standard library; `holder/__init__`, `hook_line` and
the sandbox's relay have lines of their own, which load no installed package. Without `-P` Python
looks for modules in the current directory first, and there an agent may have put some. Callers
also choose a directory that no agent writes to: `PYTHONPATH` and others may be relative. A test
lists who else uses `sys.executable`.
"""

import sys

TRUSTED_DIRECTORY = "/"


def module_command(module: str, *words: str, python: str = "") -> list[str]:
    """Run the module with these words."""
    return [python or sys.executable, "-P", "-m", module, *words]
