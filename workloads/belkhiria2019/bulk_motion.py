"""`runtime.policies.motion` for many siblings at once: a row of numbers each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from anabranch.runtime.policies.motion import (
    DOUBT,
    FADE,
    FALL,
    FALL_FROM,
    GAIN_MIN,
    JUMP,
    STEP_MAX,
)
from anabranch.workloads.curve_base import FloatArray

LEVEL, LAST, BEFORE, STEP, SQUARES, PRODUCTS, LEVEL_1, LEVEL_2 = range(8)
"""Columns. The level before and the one before that are as low as can be while there is none."""


@dataclass(frozen=True, slots=True)
class Motions:
    table: FloatArray

    @staticmethod
    def unknown(siblings: int) -> FloatArray:
        return np.full((siblings, 8), np.nan)

    @staticmethod
    def inherited(table: FloatArray) -> FloatArray:
        """Those of newcomers whose makers have these."""
        born = table.copy()
        born[:, BEFORE] = born[:, LAST]
        born[:, [LEVEL_1, LEVEL_2]] = -np.inf
        return born

    def seen(self, figure: FloatArray) -> Motions:
        old = self.table
        new = np.empty_like(old)
        step = np.clip(np.log((figure + 1) / (old[:, LAST] + 1)), -STEP_MAX, STEP_MAX)
        new[:, LAST], new[:, BEFORE], new[:, STEP] = figure, old[:, LAST], step
        new[:, SQUARES] = FADE * old[:, SQUARES] + (1 - FADE) * step**2
        new[:, PRODUCTS] = FADE * old[:, PRODUCTS] + (1 - FADE) * step * old[:, STEP]
        new[:, [LEVEL_1, LEVEL_2]] = old[:, [LEVEL, LEVEL_1]]
        new[:, LEVEL] = old[:, LEVEL] + Motions(new).gain * (figure - old[:, LEVEL])
        first = np.isnan(old[:, LEVEL])
        new[first] = 0.0
        new[first, : BEFORE + 1] = figure[first, None]
        new[first, LEVEL_1 : LEVEL_2 + 1] = -np.inf
        return Motions(new)

    @property
    def level(self) -> FloatArray:
        return self.table[:, LEVEL]

    @property
    def noise(self) -> FloatArray:
        squares, products = self.table[:, SQUARES], self.table[:, PRODUCTS]
        return np.minimum(np.maximum(0.0, -products - DOUBT * squares), squares / 2)

    @property
    def gain(self) -> FloatArray:
        noise = self.noise
        some = noise > 0
        walk = np.maximum(0.0, self.table[:, SQUARES] - 2 * noise) / np.where(some, noise, 1.0)
        gain = np.maximum(GAIN_MIN, (np.sqrt(walk * walk + 4 * walk) - walk) / 2)
        return np.where(some, gain, 1.0)

    def at_least(self, known: FloatArray) -> FloatArray:
        lowest = self.table[:, [LEVEL, LAST, BEFORE]].min(axis=1)
        return np.where(self.table[:, LAST] <= JUMP * known, self.level, lowest)

    def at_most(self, known: FloatArray) -> FloatArray:
        twice = np.maximum(self.level, self.table[:, LEVEL_1])
        thrice = np.maximum(twice, self.table[:, LEVEL_2])
        known_well = np.where(self.noise > 0, twice, self.level)
        falls = (known > FALL_FROM) & (self.level < FALL * known)
        return np.where(falls, thrice, known_well)
