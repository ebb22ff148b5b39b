"""A plugin of pytest that runs every n-th test, n from the environment variable EVERY_NTH.

`tests.libraries.own_tests` runs large suites of libraries by it. The module imports nothing of the
project, because the libraries' tests have a package `tests` of their own.
"""

import os
from typing import Any


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Removes all tests but every n-th in the order of collection."""
    step = int(os.environ.get("EVERY_NTH", "1"))
    sample = items[::step]
    config.hook.pytest_deselected(items=[item for i, item in enumerate(items) if i % step])
    items[:] = sample
