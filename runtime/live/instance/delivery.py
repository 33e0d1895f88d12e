"""What an instance does for the delivery that its pipeline promises.

- **effectively-once**: batches and what is held are in the journal, and so is the state of keys; an
  input is acknowledged when what was made of it is recorded.
- **at-least-once**: batches are not in the journal. An input is acknowledged when all that was made
  of it is acknowledged, so after a death it comes again, and what was sent on of it goes out twice.
  Where results come later than what they are made of, as those of windows do, there may be nothing
  that comes again, and what was before a watermark would come again after it. Then all instances
  do as for effectively-once, which promises more.
- **at-most-once**: an input is acknowledged when it comes in. What an instance has when it dies is
  lost, the state of its keys included.

In each, the journal has the state of the core and the messages of the protocol: the graph of
instances outlives any death.
"""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.runtime.pipeline.definition import Delivery
from anabranch.runtime.pipeline.graph import Pipeline


@dataclass(frozen=True, slots=True)
class DeliveryDuties:
    """`exact`: nothing is lost or done twice. `keeps_keys`: the state of keys outlives a death.
    `loses`: what is in work is lost by a death, rather than done twice."""

    exact: bool
    keeps_keys: bool
    loses: bool

    @property
    def repeats(self) -> bool:
        """Whether what was in work is done again after a death."""
        return not (self.exact or self.loses)


DUTIES: dict[Delivery, DeliveryDuties] = {
    "effectively-once": DeliveryDuties(exact=True, keeps_keys=True, loses=False),
    "at-least-once": DeliveryDuties(exact=False, keeps_keys=True, loses=False),
    "at-most-once": DeliveryDuties(exact=False, keeps_keys=False, loses=True),
}


def duties_of(pipeline: Pipeline) -> DeliveryDuties:
    keyed = (o.keyed for o in pipeline.operators.values() if o.keyed is not None)
    if pipeline.delivery == "at-least-once" and any(k.holds_back for k in keyed):
        return DUTIES["effectively-once"]
    return DUTIES[pipeline.delivery]
