"""Operators whose number of instances a user has set: it is brought about and kept until the user
takes it back, and meanwhile their policies decide nothing.

    pin ─▶ journal ─▶ the pin reaches instances ─▶ orders, as those of a controller

Instances carry the orders out by the protocol, so bounds and vetoes of the core hold. What hinders
only policies does not count: a full host, a budget of actions.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import replace

from anabranch.protocol.ids import OperatorName
from anabranch.runtime.live.agent.controllers import Looks
from anabranch.runtime.live.agent.messenger import Messenger
from anabranch.runtime.live.agent.roster import Roster
from anabranch.runtime.live.agent.run_journal import Pinned, RunRecord
from anabranch.runtime.live.link.messages import Order, Pin
from anabranch.runtime.pipeline.order import bound
from anabranch.runtime.plan.operator import Operator
from anabranch.runtime.policies.look_and_plan import Look, OperatorLook, Plan, Seen
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.policies.reconcile import Ordered, reconcile
from anabranch.runtime.ports import clock
from anabranch.runtime.values.checks import PipelineError
from anabranch.runtime.values.hints import hint

PERIOD_S = 1.0
"""Between two orders to instances of one operator. An order counts as under way for three
periods."""
BOUNDLESS = 1 << 30


def check_pin(operators: Mapping[OperatorName, Operator], name: str, n: int | None) -> None:
    """Whether the operator can have that many instances. Raises `PipelineError`."""
    operator = operators.get(OperatorName(name))
    if operator is None:
        raise PipelineError(f"there is no operator {name!r}; {hint(name, operators)}")
    if not operator.can_scale:
        raise PipelineError(f"operator {name!r} cannot have several instances")
    if n is not None and n > 1 and (reason := bound(operators).get(name)):
        raise PipelineError(f"operator {name!r} cannot have several instances: {reason}")
    scale = scale_of(operator)
    if n is not None and not scale.min_instances <= n <= scale.max_instances:
        low = n < scale.min_instances
        name_of = "min_instances" if low else "max_instances"
        raise PipelineError(
            f"operator {name!r} has at {'least' if low else 'most'} {getattr(scale, name_of)} "
            f"instances ({name_of} of its scale); {n} were asked for"
        )


def scale_of(operator: Operator) -> Scale:
    """One that never scales by itself has the usual bounds, as in a scale script."""
    return operator.scale or Scale()


class Pins:
    """`pinned`: numbers by operator, from here or from before the run was resumed. `log`: into the
    journal."""

    def __init__(
        self,
        operators: Mapping[OperatorName, Operator],
        pinned: dict[str, int],
        looks: Looks,
        roster: Roster,
        messenger: Messenger,
        log: Callable[[RunRecord], None],
        rng: random.Random,
    ) -> None:
        self._scales = {str(name): _free(scale_of(each)) for name, each in operators.items()}
        self._pinned = pinned
        self._looks = looks
        self._roster = roster
        self._messenger = messenger
        self._log = log
        self._rng = rng
        self._ordered = Ordered()

    def set(self, operator: str, n: int | None) -> None:
        """None: its policy decides again. Raises `CannotWrite`."""
        self._log(Pinned(operator=operator, instances=n))
        if n is None:
            self._pinned.pop(operator, None)
        else:
            self._pinned[operator] = n
        for member in self._roster.living(operator):
            self._messenger.send(member.id, Pin(holds=n is not None))

    async def keep(self, *, is_resumed: bool) -> None:
        """For as long as the run lasts."""
        if is_resumed:  # orders of before may be under way
            self._ordered = Ordered(resumed_s=clock.monotonic())
        while True:
            if self._pinned:
                self._order()
            await asyncio.sleep(PERIOD_S / 2)

    def _order(self) -> None:
        plan = Plan(dict(self._pinned), "as many as a user has asked for")
        orders, self._ordered = reconcile(plan, self._look(), self._ordered, self._rng)
        for order in orders:
            told = Order.of(order.act, "scale", insists=True)
            self._messenger.send_by_name(order.instance, told)

    def _look(self) -> Look:
        look = self._looks.look()
        return replace(look, operators={n: self._shown(look.operators[n]) for n in self._pinned})

    def _shown(self, operator: OperatorLook) -> OperatorLook:
        """Without what hinders policies, and with the keeper as the eldest: it never leaves."""
        instances = sorted(map(_unhindered, operator.instances), key=_is_no_keeper)
        return replace(operator, scale=self._scales[operator.name], instances=tuple(instances))


def _free(scale: Scale) -> Scale:
    return replace(scale, period_s=PERIOD_S, actions_per_minute_max=BOUNDLESS)


def _unhindered(seen: Seen) -> Seen:
    demand = seen.reading.demand_per_s or 0.0
    return Seen(seen.id, replace(seen.reading, blocked=0.0, cpu_wait=0.0, demand_per_s=demand))


def _is_no_keeper(seen: Seen) -> bool:
    return not seen.reading.keeper
