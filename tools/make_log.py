#!/usr/bin/env python3
"""Prints the coefficients of q for the logarithms of float32 (insitubatch.h, section ops). Needs nothing but Python.

    tools/make_log.py

log(1 + r) = r + r^2 q(r), -0.25 <= r <= 0.5, with the least greatest relative error (Remez's exchange). q is made for r from -0.266
on. log1p of one float32, 0.5 - 2^-25, has an r of -0.25 that is rounded badly, and asinh rounds badly near 0.11 and 0.23. The
wider range moves the polynomial's own error away from there. It was chosen among a few by the greatest errors of both functions."""
import math
import struct
from decimal import Decimal, getcontext

getcontext().prec = 40
LOW, HIGH, DEGREE, CELLS = Decimal("-0.266"), Decimal("0.5"), 8, 1500


def single(x):
    return struct.unpack("<f", struct.pack("<f", float(x)))[0]


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


def exchange(grid, exact, weight):
    """The coefficients, lowest first, and their greatest weight |sum - exact| on the grid."""
    n = DEGREE + 2
    at = [round((1 - math.cos(math.pi * j / (n - 1))) / 2 * (len(grid) - 1)) for j in range(n)]
    for _ in range(30):
        rows = [[grid[j]**k for k in range(DEGREE + 1)] + [(-1)**i / weight[j], exact[j]] for i, j in enumerate(at)]
        q = solve(rows)[:-1]
        off = [w * (sum(c * r**k for k, c in enumerate(q)) - e) for r, e, w in zip(grid, exact, weight)]
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


grid = [r for r in (LOW + (HIGH - LOW) * j / CELLS for j in range(CELLS + 1)) if abs(r) > Decimal("1e-6")]
exact = [((1 + r).ln() - r) / r**2 for r in grid]
coefficients, worst = exchange(grid, exact, [abs(r**2 / (1 + r).ln()) for r in grid])
print("q, lowest first:   ", ", ".join(single(x).hex() for x in coefficients))
print("its greatest error: 2^%.1f of the result" % (worst.ln() / Decimal(2).ln()))
