"""What tuples cost: the processor time of an instance by its rate, of a host by its instances."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from anabranch.runtime.values.checks import PipelineError

Records = Iterable[tuple[float, float]]


class Usage(Enum):
    """Of a host or an instance (EL2)."""

    LOW = "low"
    AVERAGE = "avg"
    STRESS = "stress"


def usage(share: float, least: float, most: float) -> Usage:
    if share > most:
        return Usage.STRESS
    return Usage.LOW if share < least else Usage.AVERAGE


@dataclass(frozen=True, slots=True)
class InstanceCost:
    """Cores that an instance takes: `base` and `per_tuple` seconds, at most one (EL5)."""

    base: float
    per_tuple: float

    def __post_init__(self) -> None:
        if self.per_tuple < 0:
            raise PipelineError(f"cost: expected per_tuple >= 0, got {self.per_tuple}")

    def cores(self, rate: float, instances: int = 1) -> float:
        """Of each of them, when `rate` is spread evenly."""
        return min(1.0, max(0.0, self.base + self.per_tuple * rate / instances))


@dataclass(frozen=True, slots=True)
class HostCost:
    """What a host of `cores` takes for its instances: `base` and `times` what they take themselves,
    for threads and messages (EL6). Nothing without an instance, all its cores at most."""

    base: float
    times: float
    cores: float

    def taken(self, of_instances: float) -> float:
        """In cores."""
        return min(self.cores, self._wanted(of_instances))

    def share(self, of_instances: float) -> float:
        return self.taken(of_instances) / self.cores

    def bears(self, of_instances: float, most: float) -> bool:
        """Whether that is within a share of `most`."""
        return self._wanted(of_instances) <= most * self.cores

    def _wanted(self, of_instances: float) -> float:
        return self.base + self.times * of_instances if of_instances > 0 else 0.0


def fitted(records: Records) -> tuple[float, float]:
    """Base and slope by least squares; the slope is 0 or more (EL12, by its default). Raises
    `PipelineError` for no record."""
    some = list(records)
    if not some:
        raise PipelineError("profile: expected at least one record")
    n = len(some)
    mean_x, mean_y = sum(x for x, _ in some) / n, sum(y for _, y in some) / n
    spread = sum((x - mean_x) ** 2 for x, _ in some)
    together = sum((x - mean_x) * (y - mean_y) for x, y in some)
    slope = max(0.0, together / spread) if spread > 0 else 0.0
    return mean_y - slope * mean_x, slope


def instance_cost(records: Records) -> InstanceCost:
    """From (tuples per second, cores) of instances."""
    return InstanceCost(*fitted(records))


def host_cost(records: Records, cores: float) -> HostCost:
    """From (cores of all instances, cores of the host)."""
    return HostCost(*fitted(records), cores)
