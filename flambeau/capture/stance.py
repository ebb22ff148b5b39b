"""How compiled functions behave in all threads: `torch.compiler.set_stance`, and passes."""

from __future__ import annotations

from flambeau import _core
from flambeau.capture import options as capture_options
from flambeau.capture import stream
from flambeau.ir.lock import late
from flambeau.runtime import config_modules


class _Stance:
    """How compiled functions behave, in all threads.

    Attributes:
        special: whether a call does something else than record itself.
    """

    def __init__(self) -> None:
        self.eager = self.refuses = self._passes = self.special = False

    @property
    def present(self) -> tuple[bool, bool]:
        """Whether they run without being recorded, their Python always; whether what has no program
        raises."""
        return self.eager, self.refuses

    @present.setter
    def present(self, value: tuple[bool, bool]) -> None:
        self.eager, self.refuses = value
        stream.refusals[:] = [_refuse_compiling] if self.refuses else []
        self._update()

    def read_passes(self) -> None:
        """Notes whether `torch._inductor.config` has passes of the user."""
        names = capture_options.PASSES
        self._passes = any(config_modules.value(capture_options.SETTINGS, n) for n in names)
        self._update()

    def _update(self) -> None:
        self.special = self.eager or self._passes
        _core.set_skipping(not self.special)


def _refuse_compiling() -> None:
    late("flambeau.reports.recompiles").refuse()


stance = _Stance()
for _name in capture_options.PASSES:
    config_modules.observe(capture_options.SETTINGS, _name, stance.read_passes)
