"""`torch.torch_version`: the version of PyTorch's API that this package follows.

Programs choose between spellings of an API by `torch.__version__ >= "2.0"`, where a plain string
compares letter by letter ("2.13" < "2.4"). A `TorchVersion` compares as PEP 440 says.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from flambeau.version import __version__ as _flambeau_version

__all__ = ["TorchVersion"]

_FORM = re.compile(
    r"v?(?P<release>\d+(?:\.\d+)*)"
    r"(?:[-_.]?(?P<pre>a|b|c|rc|alpha|beta|pre|preview)[-_.]?(?P<pre_number>\d*))?"
    r"(?:[-_.]?(?P<post>post|rev|r)[-_.]?(?P<post_number>\d*))?"
    r"(?:[-_.]?dev[-_.]?(?P<dev>\d*))?"
    r"(?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?",
    re.IGNORECASE,
)
_STAGES = {"alpha": "a", "beta": "b", "c": "rc", "pre": "rc", "preview": "rc"}
_FINAL, _NO_DEV, _FIRST = ("z", 0), (1, 0), ("", 0)


def _key(version: Any) -> tuple[Any, ...]:
    """A key that orders versions as PEP 440 does.

    Raises:
        ValueError: not a version.
    """
    text = ".".join(map(str, version)) if isinstance(version, (list, tuple)) else str(version)
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"[TorchVersion] not a version: {text!r}\nhint: for example '2.13.0'")
    release = [int(part) for part in match["release"].split(".")]
    while release and release[-1] == 0:
        release.pop()
    dev = _NO_DEV if match["dev"] is None else (0, int(match["dev"] or 0))
    post = (0, 0) if match["post"] is None else (1, int(match["post_number"] or 0))
    if match["pre"] is not None:
        stage = match["pre"].lower()
        pre = (_STAGES.get(stage, stage), int(match["pre_number"] or 0))
    else:
        pre = _FIRST if dev != _NO_DEV and post == (0, 0) else _FINAL
    local = re.split(r"[-_.]", match["local"].lower()) if match["local"] else []
    parts = [(1, int(part), "") if part.isdigit() else (0, 0, part) for part in local]
    return release, pre, post, dev, parts


def _comparison(name: str) -> Callable[[TorchVersion, Any], Any]:
    compare = getattr(str, name)
    of_keys = getattr(tuple, name)

    def method(self: TorchVersion, other: Any) -> Any:
        try:
            return of_keys(_key(self), _key(other))
        except ValueError:
            return compare(str(self), other)

    method.__name__ = name
    return method


class TorchVersion(str):
    """A version as a string that compares as a version, with strings and tuples of numbers.

    What is no version is compared as a string.

    Example:
        >>> torch.__version__ >= "2.4"
        True
        >>> torch.__version__ >= (2, 13)
        True
        >>> TorchVersion("2.13.0") == "2.13"
        True
    """

    __hash__ = str.__hash__
    __eq__ = _comparison("__eq__")
    __ne__ = _comparison("__ne__")
    __lt__ = _comparison("__lt__")
    __le__ = _comparison("__le__")
    __gt__ = _comparison("__gt__")
    __ge__ = _comparison("__ge__")


__version__ = TorchVersion(f"2.13.0+flambeau{_flambeau_version}")
