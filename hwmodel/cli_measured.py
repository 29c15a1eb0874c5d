"""The commands about measurements: fit them, and compare the model with them."""

from __future__ import annotations

import os
from pathlib import Path

import click

from hwmodel.cli_question import start
from hwmodel.terminal import json_out, say, show, text_out


@click.command("calibrate")
@click.argument("chip")
@click.option("--stack", default="", help="Software stack, as the tables name it; needed unless CHIP is 'all' or 'stacks'.")
@click.option("--measured", type=click.Path(path_type=Path), help="Folder of measured tables; the shipped one when absent.")
@click.option("--op", "ops", multiple=True, help="Only this kind of operation; may be repeated.")
@click.option("--data", default="", help="Where the tables come from, for the file.")
@click.option("--date", default="", help="Date to write; today when absent.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="File to write (a folder for 'all' and 'stacks'); printed when absent."
)
def calibrate_command(
    chip: str, stack: str, measured: Path | None, ops: tuple[str, ...], data: str, date: str, out: Path | None
) -> None:
    """Fit CHIP, a name or a file, under one software stack to measured rows.

    With --out, a table says what not to trust.

    'all' writes every chip, stack and prior of the tables; 'stacks' fits what surrounds the ops of a served step to
    end-to-end rows.
    """
    _one_thread()
    start()
    from hwmodel.calibrate import calibrate_all, text_of
    from hwmodel.spec import catalog

    measured = measured or catalog.shipped("measured")
    if chip == "all":
        if out is None:
            raise click.UsageError("'all' writes a file per chip and stack: give a folder with --out")
        for path in calibrate_all(measured, out, date, data):
            say(f"wrote {path}")
        return
    if chip == "stacks":
        _fit_stacks(measured, out, date, data)
        return
    if not stack:
        raise click.UsageError("name the software stack of the rows with --stack")
    from hwmodel.calibrated import calibrate

    made = calibrate(chip, stack, measured, ops=ops, date=date, data=data)
    found = made.calibration
    if out is None:
        for fit in found.fits:
            if fit.held_out is not None:
                errors = f"held out: median {fit.held_out.median:.1%}, 90 % below {fit.held_out.p90:.1%}"
                say(f"{fit.key}: {fit.rows} rows, {errors}" + (f"; {fit.doubt}" if fit.doubt else ""))
        text_out(text_of(found))
        return
    from hwmodel.report.accuracy import trust

    made.write(out)
    show(trust(found))
    say(f"wrote {out}")


def _one_thread() -> None:
    """Solve systems in one thread, unless the user says otherwise; before SciPy is loaded.

    They are small: more threads gain no time alone, and where others use the processor they wait for each other in a loop.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _fit_stacks(measured: Path, out: Path | None, date: str, data: str) -> None:
    from hwmodel.report.accuracy import served
    from hwmodel.served.compare import fit_stacks
    from hwmodel.spec.write import modeline, to_yaml

    found = fit_stacks(measured, date, data)
    for stack in found.stacks:
        path = (out or Path()) / f"{stack.stack}.yaml"
        header = f"{modeline('stack', path)}\nwritten by `hwmodel calibrate stacks`"
        text = to_yaml(stack.model_dump(mode="json", by_alias=True, exclude_defaults=True), header)
        if out is None:
            text_out(text)
        else:
            out.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            say(f"wrote {path}")
    say("errors on configurations that were held out:")
    show(served(found.held_out))


@click.command("validate")
@click.option("--measured", type=click.Path(path_type=Path), help="Folder of measured tables; the shipped one when absent.")
@click.option("--device", default="", help="Only this chip.")
@click.option("--op", "ops", multiple=True, help="Only this kind of operation, or e2e, steady or published; may be repeated.")
@click.option("--summary", is_flag=True, help="One line per kind of operation, with the uncalibrated error beside it.")
@click.option("--uncalibrated", is_flag=True, help="With the chips' stated efficiencies.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
def validate_command(
    measured: Path | None, device: str, ops: tuple[str, ...], summary: bool, uncalibrated: bool, as_json: bool
) -> None:
    """Compare the model with measured rows, operation by operation and end to end."""
    start()
    from hwmodel.measured import FILES
    from hwmodel.validate import validate

    ops = ops or (tuple(FILES) if summary else ())  # served rows have no one line: the summary is of operations
    found = validate(measured, device=device, ops=ops, calibrated=not uncalibrated)
    if as_json:
        json_out(found.to_dict())
        return
    from hwmodel.report.accuracy import accuracy, short

    if summary:
        show(short(found, validate(measured, device=device, ops=ops, calibrated=False, bands=False)))
    else:
        show(accuracy(found))
