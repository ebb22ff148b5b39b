"""`python -m flambeau script.py`: runs a program for which `import torch` means Flambeau.

As `python` itself: a script or directory, `-m module` or `-c code`, then the program's arguments.
Processes that the program starts see the alias too.
"""

from __future__ import annotations

import os
import runpy
import sys
import types
from typing import NoReturn

from flambeau.compat import PATH, install

_USAGE = """usage: python -m flambeau script.py [argument ...]
       python -m flambeau -m module [argument ...]
       python -m flambeau -c code [argument ...]

Runs a program written for PyTorch: its `import torch` gives Flambeau.
"""


def _fail() -> NoReturn:
    sys.stderr.write(_USAGE)
    raise SystemExit(2)


def _share_with_children() -> None:
    paths = [PATH, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))


def _run_code(code: str) -> None:
    """Runs `code` as the module `__main__`, as `python -c` does."""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(code, "<string>", "exec"), vars(main))


def main() -> None:
    """Runs what the command line names.

    Raises:
        SystemExit: nothing to run is named; and what the program raises.
    """
    arguments = sys.argv[1:]
    if not arguments or arguments[0] in ("-h", "--help"):
        if arguments:
            print(_USAGE, end="")
            return
        _fail()
    option, values = arguments[0], arguments[1:]
    if option in ("-m", "-c"):
        if not values:
            _fail()
        sys.argv = [option, *values[1:]]
    elif option.startswith("-"):
        _fail()
    else:
        sys.argv = arguments
    install()
    _share_with_children()
    if option == "-m":
        runpy.run_module(values[0], run_name="__main__", alter_sys=True)
    elif option == "-c":
        _run_code(values[0])
    else:
        if not os.path.isdir(option):
            sys.path[0] = os.path.dirname(os.path.abspath(option))
        else:
            sys.path.pop(0)
        if PATH not in sys.path:
            sys.path.insert(1, PATH)
        runpy.run_path(option, run_name="__main__")


if __name__ == "__main__":
    main()
