"""``hw.calibrate``: a chip under one software stack fitted to measured rows, ready to be written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hwmodel.answered import Answered
from hwmodel.calibrate import calibrate as fit_to
from hwmodel.calibrate import known_chips, text_of
from hwmodel.calibration import Calibration
from hwmodel.hardware import load_chip
from hwmodel.measured import FILES, read
from hwmodel.spec import catalog
from hwmodel.spec.errors import InputError, did_you_mean


@dataclass(frozen=True)
class Calibrated(Answered):
    """A calibration that was made from rows."""

    calibration: Calibration
    """Its fits: parameters, held-out errors, domain, doubt."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as the file has it: times with their unit, errors as shares (0.1 is 10 %)."""
        found: dict[str, Any] = self.calibration.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        return found

    def write(self, path: str | Path) -> Path:
        """Write the file; found by its name as chips/calibrations/CHIP.STACK.yaml."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text_of(self.calibration, path), encoding="utf-8")
        return path


def calibrate(
    chip: str, stack: str, measured: str | Path | None = None, *, ops: Sequence[str] = (), date: str = "", data: str = ""
) -> Calibrated:
    """Fit a chip under one software stack to measured rows, as ``hwmodel calibrate`` does.

    Parameters
    ----------
    chip
        Name or path; the rows name it as its file does.
    stack
        As the rows name it.
    measured
        Folder of tables in the columns of ``measured/`` (sizes, times in us); the shipped one when None.
    ops
        Only these kinds of operation; all when empty.
    date, data
        For the file: when (today when empty), and where the rows come from.

    Raises
    ------
    InputError
        When the folder holds no rows of the chip under the stack, or they cannot be read, or the chip is not known.
    """
    groups = read(Path(measured) if measured is not None else catalog.shipped("measured"), ops)
    if not groups:
        raise InputError(f"no rows of {', '.join(ops) or 'any operation'}{did_you_mean(ops[0], FILES) if ops else ''}")
    chips = known_chips(groups)
    if catalog.is_path(chip):
        own = load_chip(chip)
        chip, chips = own.name, {**chips, own.name: own}
    return Calibrated(fit_to(chip, stack, groups, chips, date, data))
