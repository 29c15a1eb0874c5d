"""Symbolic dimensions to numbers."""

import numpy as np

from hwmodel.kernels.bare import bare

TERMS = 2
FACTORS = 6


@bare
def resolve(
    symbols: np.ndarray,
    unit: np.ndarray,
    coefficient: np.ndarray,
    which: np.ndarray,
    power: np.ndarray,
    each: np.ndarray,
    out: np.ndarray,
) -> None:
    """Dimensions of all ops at all points: the sum over terms of unit x ceil(coefficient x product of symbol^power) x each.

    symbols : (points, symbols); unit, coefficient : (ops, dims, TERMS); which, power, each : (ops, dims, TERMS, FACTORS),
    which = -1 where unused, each = 1 for a factor outside the ceiling; out : (points, ops, dims). A ceiling is the share of
    the busiest chip; 0 stays 0.
    """
    for q in range(symbols.shape[0]):
        for j in range(unit.shape[0]):
            for d in range(unit.shape[1]):
                total = 0.0
                for t in range(TERMS):
                    value = coefficient[j, d, t]
                    outside = unit[j, d, t]
                    if value == 0.0:
                        continue
                    for f in range(FACTORS):
                        s = which[j, d, t, f]
                        if s < 0:
                            break
                        x = symbols[q, s]
                        for _ in range(abs(power[j, d, t, f])):
                            factor = x if power[j, d, t, f] > 0 else 1.0 / x
                            if each[j, d, t, f] == 1:
                                outside *= factor
                            else:
                                value *= factor
                    total += outside * np.ceil(value - 1e-9)
                out[q, j, d] = total
