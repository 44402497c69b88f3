#!/usr/bin/env python3
"""Prints the numbers of log1p and asinh of float32 (insitubatch.h, section ops): the table of 16 intervals and the coefficients
of q for logarithms, and the rows of asinh. Needs nothing but Python; takes half a minute.

    tools/make_log.py

Table: interval i is [1 + i/16, 1 + (i + 1)/16). c is near 1 / m there, and is chosen among the numbers of 18 bits near the best
one by the greatest error that k log(2) - log(c), rounded to float32, has for any k, in units in the last place of the least result
of the interval; for k of -1 to 3, where roundings of other terms count most, it must be better still. c is 1 in the first interval
and 1/2 in the last two.

Coefficients: log(1 + r) = r + r^2 q(r), |r| <= 1/16, with the least greatest relative error (Remez's exchange).

Rows of asinh: interval i is where 2^(i - 6) <= x^2 + 2^-6 < 2^(i - 5), i of 0 to 31, and its row is that of index i + 25 modulo
32, which are the exponent's bits. asinh(c + t) is a polynomial of degree 5, with the least greatest error. c is near the middle
of the interval, and such that the first two coefficients lose nearly nothing when they are rounded to float32. In the first
interval the polynomial is x + x^3 (...), with the least greatest relative error."""
import math
import struct
from decimal import Decimal, getcontext

getcontext().prec = 40
SPAN, DEGREE, BITS, STEPS, BETTER = 1 / 16, 3, 18, 2500, Decimal(0.2)
CELLS, REACH = 200, 3000
LN2 = Decimal(2).ln()


def bits(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def single(x):
    return struct.unpack("<f", struct.pack("<f", float(x)))[0]


def ulp(x):
    size = bits(abs(single(x)))
    return Decimal(struct.unpack("<f", struct.pack("<I", size + 1))[0]) - Decimal(abs(single(x)))


def error(c, entry, reach, low, high, limit):
    """The greatest over k; one above `limit` is given up early."""
    worst, log = Decimal(0), Decimal(c).ln()
    for k in range(-24, 127):
        off = abs(Decimal(single(Decimal(entry) - k * Decimal(single(LN2)))) - (log - k * LN2))
        least = min(abs(k * LN2 + Decimal(m).ln()) for m in (low, high))
        worst = max(worst, (off + ulp(reach)) / ulp(least) + (BETTER if -1 <= k <= 3 else 0))
        if worst >= limit:
            break
    return worst


def interval(i):
    """c and log(c)."""
    if i == 0:
        return 1.0, 0.0
    if i >= 14:
        return 0.5, -single(LN2)
    low, high = 1 + i / 16, 1 + (i + 1) / 16
    best = (Decimal(9), 0.0, 0.0)
    for step in range(-STEPS, STEPS + 1):
        c = (round(2 / (low + high) * 2**BITS) + step) / 2**BITS
        reach = max(abs(c * low - 1), abs(c * high - 1))
        if reach > (high - low) / (high + low) * 1.08:
            continue
        for less in (0, Decimal(single(LN2)) - LN2):  # exact for k of 0, or for k of -1
            entry = single(Decimal(c).ln() - less)
            worst = error(c, entry, reach, low, high, best[0])
            if worst < best[0]:
                best = (worst, c, entry)
    return best[1:]


def solve(rows):
    """Gauss and Jordan."""
    n = len(rows)
    for i in range(n):
        at = max(range(i, n), key=lambda j: abs(rows[j][i]))
        rows[i], rows[at] = rows[at], rows[i]
        for j in range(n):
            if j != i:
                by = rows[j][i] / rows[i][i]
                rows[j] = [x - by * y for x, y in zip(rows[j], rows[i])]
    return [rows[i][n] / rows[i][i] for i in range(n)]


def power(x, k):
    return x**k if k else Decimal(1)


def exchange(grid, exact, weight, powers):
    """The coefficients of these powers, and their greatest weight |sum - exact| on the grid."""
    n = len(powers) + 1
    at = [round((1 - math.cos(math.pi * j / (n - 1))) / 2 * (len(grid) - 1)) for j in range(n)]
    for _ in range(30):
        rows = [[power(grid[j], k) for k in powers] + [(-1)**i / weight[j], exact[j]] for i, j in enumerate(at)]
        q = solve(rows)[:-1]
        off = [w * (sum(c * power(r, k) for k, c in zip(powers, q)) - e) for r, e, w in zip(grid, exact, weight)]
        peaks = []
        for j, e in enumerate(off):
            if not peaks or (off[peaks[-1]] > 0) != (e > 0):
                peaks.append(j)
            elif abs(e) > abs(off[peaks[-1]]):
                peaks[-1] = j
        while len(peaks) > n:
            peaks.pop(0 if abs(off[peaks[0]]) < abs(off[peaks[-1]]) else -1)
        if len(peaks) < n or peaks == at:
            break
        at = peaks
    return q, max(abs(e) for e in off)


def series():
    """q, and its greatest relative error."""
    grid = [Decimal(SPAN) * j / 1000 for j in range(-1000, 1001) if j]
    exact = [sum((1 if k % 2 else -1) * r**(k - 2) / k for k in range(2, 40)) for r in grid]
    return exchange(grid, exact, grid, range(DEGREE + 1))


def asinh(x):
    if x > Decimal("0.01"):
        return (x + (1 + x * x).sqrt()).ln()
    term, total = x, Decimal(0)
    for n in range(12):
        total += term / (2 * n + 1)
        term *= -x * x * (2 * n + 1) / (2 * n + 2)
    return total


def moved(q, c):
    """The coefficients of the same polynomial in x - c."""
    q = list(q)
    for i in range(len(q)):
        for j in range(len(q) - 2, i - 1, -1):
            q[j] += c * q[j + 1]
    return q


def row(i):
    """c and the coefficients, lowest first, and the greatest error in units in the last place."""
    low, high = ((Decimal(2)**(i + j) - Decimal(2)**-6).sqrt() for j in (-6, -5))
    if i == 0:
        grid = [high * j / CELLS for j in range(1, CELLS + 1)]
        q, worst = exchange(grid, [asinh(x) - x for x in grid], [1 / x for x in grid], range(3, 6))
        return [0.0, 0.0, 1.0, 0.0] + [single(x) for x in q], worst * 2**24
    middle = (low + high) / 2
    grid = [(high - low) * (Decimal(j) / CELLS - Decimal(0.5)) for j in range(CELLS + 1)]
    q, worst = exchange(grid, [asinh(middle + x) for x in grid], [Decimal(1)] * len(grid), range(6))
    best, unit = (Decimal(9), 0, []), ulp(asinh(low))
    for step in range(-REACH, REACH + 1):
        c = Decimal(single(middle)) + step * ulp(middle)
        here = moved(q, c - middle)
        lost = abs(Decimal(single(here[0])) - here[0])
        if lost < best[0]:
            lost += abs(Decimal(single(here[1])) - here[1]) * (high - low) / 2
        if lost < best[0]:
            best = (lost, c, here)
    return [single(x) for x in [best[1]] + best[2]], worst / unit


table = [interval(i) for i in range(16)]
coefficients, worst = series()
print("insitu__ops_inverse:    ", ", ".join("0x%08x" % (bits(c) + bits(1.0)) for c, log in table))
print("insitu__ops_inverse_log:", ", ".join("0x%08x" % bits(log) for c, log in table))
print("q, lowest first:        ", ", ".join(single(x).hex() for x in coefficients))
print("its greatest error:      2^%.1f of the result" % (worst.ln() / LN2))
rows = [row((i - 25) % 32) for i in range(32)]
for name, part in (("LOW", rows[:9]), ("MORE", rows[9:25]), ("LEAST", rows[25:])):
    print("INSITU__OPS_ASINH_%s:" % name)
    for numbers, worst in part:
        print("  R(%s)  %.2f units" % (", ".join("0x%08x" % bits(x) for x in numbers), worst))
