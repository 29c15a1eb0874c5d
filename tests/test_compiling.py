"""How kernels are compiled: functions that only kernels call are linked into them, many arrays are passed as one address."""

from __future__ import annotations

import gc
from typing import NamedTuple

import numpy as np
import pytest
from numba import njit
from numba.core.errors import TypingError

from hwmodel.kernels.bare import bare
from hwmodel.kernels.linked import Part, linked
from hwmodel.kernels.reference import by_reference


class Books(NamedTuple):
    """Arrays that belong together."""

    counts: np.ndarray
    prices: np.ndarray
    lent: np.ndarray
    """(days, books)."""


@linked
def scaled(values: np.ndarray, by: int) -> float:
    return values[0] * by


@njit
def twice_and_more(values: np.ndarray, by: int) -> float:
    return scaled(values, 2) + scaled(values, by)


@linked
def raise_prices(books: Books, by: float) -> None:
    for i in range(books.prices.shape[0]):
        books.prices[i] += by * books.counts[i]


@njit
def dearer(books: Books) -> float:
    books = by_reference(books)
    raise_prices(books, 0.5)
    books.lent[1, 2] = books.counts[2]  # a whole number as a real one
    books.lent[0] = 7.0
    books.lent[1, :2] = books.prices[:2]
    return books.prices[:].sum() + books.lent[1].sum() + books.lent[books.lent.shape[0] - 1, 0]


@njit
def misspelt(books: Books) -> float:
    return by_reference(books).price[0]


@bare
def halved(x: float) -> float:
    return x / 2.0


@njit
def quartered(x: float) -> float:
    return halved(halved(x))


def test_a_linked_function_is_compiled_once_for_all_constants_and_has_no_machine_code() -> None:
    assert twice_and_more(np.array([3.0]), 5) == 3.0 * 2 + 3.0 * 5
    (version,) = scaled.overloads.values()
    assert isinstance(version.library, Part)
    engine = version.library.codegen._engine
    assert not engine.is_symbol_defined(version.fndesc.llvm_func_name)
    (caller,) = twice_and_more.overloads.values()
    assert engine.is_symbol_defined(caller.fndesc.llvm_func_name)


def test_arrays_by_reference_are_read_and_written_where_they_lie() -> None:
    books = Books(np.array([1, 2, 3]), np.array([10.0, 20.0, 30.0]), np.zeros((2, 3)))
    for _ in range(1000):  # a reference that were counted wrongly would free the arrays
        books.prices[:] = 10.0, 20.0, 30.0
        assert dearer(books) == 63.0 + (10.5 + 21.0 + 3.0) + 10.5
    assert books.prices.tolist() == [10.5, 21.0, 31.5]
    assert books.counts.tolist() == [1, 2, 3]
    assert books.lent.tolist() == [[7.0, 7.0, 7.0], [10.5, 21.0, 3.0]]


def test_arrays_by_reference_may_be_spaced_apart() -> None:
    apart = Books(np.arange(1, 7)[::2], np.array([10.0, 20.0, 30.0]), np.asfortranarray(np.zeros((2, 3))))
    assert dearer(apart) == 10.5 + 21.5 + 32.5 + (10.5 + 21.5 + 5.0) + 10.5


def test_a_field_that_is_not_there_is_told() -> None:
    with pytest.raises(TypingError, match="price"):
        misspelt(Books(np.array([1]), np.array([1.0]), np.zeros((1, 1))))


def test_a_bare_function_is_called_by_python_and_by_kernels() -> None:
    assert quartered(3.0) == 0.75
    assert not halved.overloads, "no machine code of its own so far"
    assert halved(3.0) == 1.5
    assert len(halved.overloads) == 1


def test_garbage_is_collected_again_after_a_kernel_is_compiled() -> None:
    from hwmodel.kernels import announce_compiling

    told: list[bool] = []
    announce_compiling(lambda: told.append(True))
    for plus in (1.0, 2.0):

        @njit
        def added(x: float, plus: float = plus) -> float:
            return x + plus

        assert added(1.0) == 1.0 + plus
        assert gc.isenabled()
    assert len(told) == 1, "told once"


def test_who_collects_no_garbage_still_does_not_after_a_kernel_is_compiled() -> None:
    from hwmodel.kernels import announce_compiling

    announce_compiling(lambda: None)

    @njit
    def fewer(x: float) -> float:
        return x - 1.0

    gc.disable()
    try:
        assert fewer(3.0) == 2.0
        assert not gc.isenabled()
    finally:
        gc.enable()
