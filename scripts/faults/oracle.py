"""What must come out: the same computed by plain loops, one tuple after the other."""

from __future__ import annotations

import json
from array import array
from collections import Counter, defaultdict
from dataclasses import dataclass

from faults.flow import KEYS, SPAN_S, made, split
from faults.settings import Settings


@dataclass(frozen=True, slots=True)
class Expected:
    """By key. `sums`: the numbers of the tuples that make up the key's results, in any order.
    `rows`: the results themselves, in order."""

    sums: dict[str, array[int]]
    rows: dict[str, list[list[int]]]

    @property
    def results(self) -> int:
        return sum(map(len, self.sums.values())) + sum(map(len, self.rows.values()))


def expected_counted(settings: Settings) -> Expected:
    sums: defaultdict[str, array[int]] = defaultdict(lambda: array("q"))
    with open(settings.input, encoding="ascii") as file:
        for line in file:
            for word, number in split(json.loads(line)):
                sums[word].append(number)
    for word, numbers in list(sums.items()):
        sums[word[0].upper()].extend(range(1, len(numbers) + 1))
    return Expected(dict(sums), {})


def expected_traced(settings: Settings) -> Expected:
    rows: defaultdict[str, list[list[int]]] = defaultdict(list)
    spans: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    totals: Counter[int] = Counter()
    for number in range(settings.made):
        key, _ = made(number)
        totals[key] += number
        rows[f"t{key}"].append([number // KEYS + 1, totals[key]])
        spans[f"s{key}", int(number / settings.made_per_s / SPAN_S)].append(number)
    for (name, _), numbers in sorted(spans.items(), key=lambda item: item[0][1]):
        rows[name].append([len(numbers), sum(numbers)])
    return Expected({}, dict(rows))
