"""The vector operations, against exact arithmetic and wider types: NumPy's float32 functions depend on the CPU."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import pytest

from whence.kernels.simd import WIDTH, exp2, larger, load, reaches, spread, store, store_totals, take_number, zeros

# Of each type: where exp2 stops at either end, and the units in the last place that it may be off.
RANGES = [(np.float32, -125, 127, 1.5), (np.float64, -1021, 1023, 2.0)]


@numba.njit
def _powers(x: Any, out: Any) -> None:
    for start in range(0, len(x), 16):
        store(out, (start,), exp2(load(x, (start,))))


@numba.njit
def _totals(rows: Any, out: Any) -> None:
    for row in range(0, rows.shape[0], 4):
        store_totals(rows, (row, 0), out, (row,))


@numba.njit
def _arithmetic(a: Any, b: Any, c: Any, out: Any) -> None:
    for row in range(a.shape[0]):
        store(out, (row, 0), load(a, (row, 0)) * load(b, (row, 0)) + spread(c, (row,)) + zeros(a))


@numba.njit
def _larger(a: Any, b: Any, out: Any) -> bool:
    store(out, (0,), larger(load(a, (0,)), load(b, (0,))))
    return reaches(load(a, (0,)), load(b, (0,)))


@numba.njit
def _count(counter: Any, times: int) -> int:
    last = 0
    for _ in range(times):
        last = take_number(counter)
    return last


def powers(x: Any) -> Any:
    x = np.asarray(x)
    padded = np.concatenate([x, np.zeros(-len(x) % WIDTH, x.dtype)])
    out = np.empty_like(padded)
    _powers(padded, out)
    return out[: len(x)]


def wider(x: Any) -> Any:
    """The same numbers with bits to spare; for double precision long double, which has some on most machines."""
    return x.astype(np.float64 if x.dtype == np.float32 else np.longdouble)


def truth(x: Any) -> Any:
    """2 to the x."""
    return np.exp2(wider(x))


@pytest.mark.parametrize(("kind", "lowest", "highest", "units"), RANGES)
def test_exp2_is_right_to_about_one_unit(kind: Any, lowest: int, highest: int, units: float, slow: bool) -> None:
    count = 2**24 if slow else 2**20
    chance = np.random.default_rng(0)
    small = np.exp(chance.uniform(np.log(1e-12), np.log(1), count // 4))  # decays of slowly fading memories
    sweeps = [
        np.linspace(lowest, highest, count),
        np.linspace(-2, 2, count // 4),
        np.arange(lowest, highest) + 0.5,  # where the rounding to a whole exponent is a tie
        np.nextafter(np.arange(lowest, highest) + 0.5, -np.inf),
        -small,
        small,
    ]
    for sweep in sweeps:
        x = sweep.astype(kind)
        actual, expected = powers(x), truth(x)
        worst = np.max(np.abs(actual - expected) / expected) / np.finfo(kind).eps
        assert worst <= units, worst


@pytest.mark.parametrize(("kind", "lowest", "highest", "units"), RANGES)
def test_exp2_of_whole_numbers_is_exact(kind: Any, lowest: int, highest: int, units: float) -> None:
    x = np.arange(lowest, highest + 1).astype(kind)
    assert powers(x).tolist() == [math.ldexp(1.0, power) for power in range(lowest, highest + 1)]
    assert np.array_equal(powers(np.array([0.0, -0.0], kind)), np.ones(2))


@pytest.mark.parametrize(("kind", "lowest", "highest", "units"), RANGES)
def test_exp2_stays_at_its_lower_end_and_leaves_by_the_upper(
    kind: Any, lowest: int, highest: int, units: float
) -> None:
    low = np.array([-np.inf, np.finfo(kind).min, -1e6, lowest - 1, np.nextafter(kind(lowest), kind(-np.inf))], kind)
    assert powers(low).tolist() == [math.ldexp(1.0, lowest)] * len(low)
    high = np.array([np.inf, np.finfo(kind).max, 1e6, highest + 1], kind)
    assert np.isposinf(powers(high)).all()


@pytest.mark.parametrize(("kind", "lowest", "highest", "units"), RANGES)
def test_exp2_rises_near_0_and_never_exceeds_1_below_it(kind: Any, lowest: int, highest: int, units: float) -> None:
    """A decay above 1 would make a memory grow. Neighbours may be out of order by one unit in the last place."""
    for width in (1e-6, 1e-3, 0.5, 1):
        actual = powers(np.linspace(-width, width, 2**16).astype(kind))
        assert np.diff(actual).min() >= -np.finfo(kind).eps
        half = len(actual) // 2
        assert actual[:half].max() <= 1 <= actual[half:].min()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_exp2_of_nan_is_nan(kind: Any) -> None:
    """Also those with other bits than NumPy's own: CUDA makes 0x7fffffff."""
    whole = np.dtype(f"u{np.dtype(kind).itemsize}")
    quiet = np.array([np.nan], kind).view(whole)[0]
    payloads = np.array([0, 1, 2, 0x7F, 0x80, 0xFF, 0x100, 0x3FFFFF], whole)
    x = (quiet | payloads).view(kind)
    assert np.isnan(x).all()
    assert np.isnan(powers(x)).all()
    assert np.isnan(powers(-x)).all()


@pytest.mark.parametrize(("kind", "tolerance"), [(np.float32, 1e-6), (np.float64, 1e-15)])
def test_totals_are_sums_of_rows(kind: Any, tolerance: float) -> None:
    rows = np.random.default_rng(1).normal(size=(12, WIDTH)).astype(kind)
    out = np.full(12, np.nan, kind)
    _totals(rows, out)
    np.testing.assert_allclose(out, wider(rows).sum(1), rtol=tolerance, atol=tolerance)
    # every lane counts once, and in its own row
    for lane in range(WIDTH):
        single = np.zeros((4, WIDTH), kind)
        single[:, lane] = (1, 2, 3, 4)
        out = np.empty(4, kind)
        _totals(single, out)
        assert out.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(("kind", "tolerance"), [(np.float32, 1e-6), (np.float64, 1e-15)])
def test_arithmetic_and_strided_rows(kind: Any, tolerance: float) -> None:
    chance = np.random.default_rng(2)
    wide = chance.normal(size=(6, 3 * WIDTH)).astype(kind)
    a, b, c = wide[::2, 5 : 5 + WIDTH], wide[::-2, :WIDTH], chance.normal(size=3).astype(kind)
    out = np.full((3, WIDTH), np.nan, kind)
    _arithmetic(a, b, c, out)
    expected = wider(a) * wider(b) + wider(c)[:, None]
    np.testing.assert_allclose(out, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_the_larger_and_whether_any_lane_reaches(kind: Any) -> None:
    a, b = np.random.default_rng(3).normal(size=(2, WIDTH)).astype(kind)
    a[:3], b[:2] = (np.nan, np.inf, -np.inf), (1, np.inf)
    out = np.empty(WIDTH, kind)
    _larger(a, b, out)
    assert np.array_equal(out, np.fmax(a, b))
    for lane in range(WIDTH):
        for value, expected in ((-0.5, False), (0.0, True), (1.0, True), (np.nan, True)):
            one = np.full(WIDTH, -1, kind)
            one[lane] = value
            assert _larger(one, np.zeros(WIDTH, kind), out) is expected


def test_numbers_are_taken_in_turn() -> None:
    counter = np.zeros(1, np.int64)
    assert _count(counter, 5) == 4
    assert counter[0] == 5
