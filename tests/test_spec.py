"""The edge: units, numbers with provenance, YAML with places."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodel.spec import units
from hwmodel.spec.errors import InputError
from hwmodel.spec.number import Number, Unit
from hwmodel.spec.yamlfile import parse_json, parse_yaml


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("3.35 TB/s", "bytes_per_s", 3.35e12),
        ("400 Gb/s", "bytes_per_s", 50e9),
        ("80 GB", "bytes", 80e9),
        ("80 GiB", "bytes", 80 * 2**30),
        ("989.4 TFLOP/s", "flops_per_s", 989.4e12),
        ("750 TOPS", "flops_per_s", 750e12),
        ("5 us", "s", 5e-6),
        ("300ns", "s", 3e-7),
        ("4 pJ/bit", "joules_per_byte", 32e-12),
        ("5,000 USD", "usd", None),
        ("5_000 USD", "usd", 5000.0),
        ("90 %", "number", 0.9),
        (0.9, "number", 0.9),
        ("1.83 GHz", "hz", 1.83e9),
        ("2.5 USD/h", "usd_per_hour", 2.5),
    ],
)
def test_quantities_as_a_datasheet_prints_them(text: object, dimension: str, value: float | None) -> None:
    if value is None:
        with pytest.raises(ValueError, match=r"expected a quantity|not a known unit"):
            units.parse(text, dimension)
    else:
        assert units.parse(text, dimension) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "dimension", "message"),
    [
        (80, "bytes", "needs a unit, such as '80 GB' or '80 GiB'"),
        ("80", "bytes", "needs a unit"),
        ("989 TB/s", "flops_per_s", "989.4 TFLOP/s"),
        ("fast", "s", "expected a quantity such as '3 us'"),
        ("-3 us", "s", "must not be negative"),
        ("1e999 us", "s", "finite"),
        (float("nan"), "number", "finite"),
        (True, "number", "expected a quantity"),
        (None, "bytes", "expected a quantity"),
        ([1], "bytes", "expected a quantity"),
    ],
)
def test_a_wrong_quantity_says_what_was_expected(text: object, dimension: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        units.parse(text, dimension)


@given(st.sampled_from(sorted(units.UNITS)), st.floats(1e-18, 1e18))
def test_what_is_shown_can_be_read_again(dimension: str, value: float) -> None:
    shown = units.show(value, dimension, 12)
    assert math.isclose(units.parse(shown, dimension), value, rel_tol=1e-9)


def test_a_number_keeps_its_provenance_and_computes_as_a_float() -> None:
    number = Unit("bytes_per_s").read(
        {"value": "22 TB/s", "range": ["19.2 TB/s", "22 TB/s"], "status": "published", "source": "blog"}
    )
    assert isinstance(number, Number)
    assert (number.low, number.high, number.status, number.source) == (19.2e12, 22e12, "published", "blog")
    assert type(number * 2) is float
    assert number.at(1.0).source == "blog"


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"range": ["1 us", "2 us"]}, "needs 'value'"),
        ({"value": "3 us", "range": ["1 us", "2 us"]}, "does not hold the value"),
        ({"value": "3 us", "range": "1 us"}, "two quantities"),
        ({"value": "3 us", "status": "sure"}, "status must be one of"),
        ({"value": "3 us", "souce": "x"}, "unknown key 'souce'"),
    ],
)
def test_a_quantity_written_out_is_checked(raw: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Unit("s").read(raw)


def test_yaml_scalars_follow_yaml_1_2() -> None:
    value = parse_yaml("a: 1e12\nb: off\nc: 12:30\nd: '3'\ne: 0x10\nf: null\ng: 1_000\nh: .5\n", "x.yaml").value
    assert value == {"a": 1e12, "b": "off", "c": "12:30", "d": "3", "e": "0x10", "f": None, "g": 1000, "h": 0.5}


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("a: 1\na: 2\n", "given twice", 2),
        ("a: &x 1\nb: *x\n", "anchors and aliases", 1),
        ("a: !!python/object/apply:os.system [ls]\n", "tags such as", 1),
        ("a: [1, 2\n", "not valid YAML", 1),
        ("a: 1\n---\nb: 2\n", "second document", 2),
        ("? [1]\n: 2\n", "a key must be a plain word", 1),
    ],
)
def test_yaml_that_is_refused_says_where(text: str, message: str, line: int) -> None:
    with pytest.raises(InputError) as caught:
        parse_yaml(text, "x.yaml")
    problem = caught.value.problems[0]
    assert message in problem.message
    assert problem.line == line
    assert problem.file == "x.yaml"


def test_json_repeats_and_syntax_are_located() -> None:
    with pytest.raises(InputError, match="'a' is given twice"):
        parse_json('{"a": 1, "a": 2}', "x.json")
    with pytest.raises(InputError, match=r"x\.json:2:") as caught:
        parse_json('{"a": 1,\n "b" 2}', "x.json")
    assert caught.value.problems[0].line == 2
    assert math.isinf(parse_json('{"a": Infinity}', "x.json").value["a"])
