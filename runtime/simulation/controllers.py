"""The controllers of a world: the sibling of the live driver's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.protocol.ids import OperatorName
from anabranch.protocol.states import Active
from anabranch.runtime.policies.control import Control, Sight, unread
from anabranch.runtime.policies.controller import controllers_of
from anabranch.runtime.policies.look_and_plan import Look, OperatorLook, Seen
from anabranch.runtime.policies.policy import Scale
from anabranch.runtime.policies.reconcile import PlannedOrder

if TYPE_CHECKING:
    from anabranch.runtime.simulation.models import Model
    from anabranch.runtime.simulation.world import World


class Controllers:
    """All of a world. They look as often as live ones; an order takes as long as a message."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._sight = Sight([_blank(world, model) for model in world.models.values()])
        found = controllers_of(world.models.values()) if world.decides else {}
        self._controls = [
            Control.begin(policy, names, world.rng, world.clock.now, None)
            for policy, names in found.items()
        ]

    def begin(self) -> None:
        if self._controls:
            self._world.clock.after(self._world.limits.status_period_s, self._step)

    def _step(self, _: None) -> None:
        world = self._world
        if not world.ticking:
            return
        look = self._look()
        for control in self._controls:
            orders, _is_new = control.step(look)
            for order in orders:
                world.clock.after(world.net.local_s, self._deliver, order)
        world.clock.after(world.limits.status_period_s, self._step)

    def _deliver(self, order: PlannedOrder) -> None:
        operator, _, number = order.instance.rpartition(".")
        for me in self._world.of[operator]:
            if me.me.number == int(number):
                me.scaling.ordered(order.act)

    def _look(self) -> Look:
        world, told, coming = self._world, {}, {}
        for name in world.models:
            told[str(name)] = self._seen(name)
            begun = sum(i.began for i in world.of[name])
            coming[str(name)] = world.living_of(name) - begun
        return self._sight.look(world.clock.now, told, coming)

    def _seen(self, name: OperatorName) -> list[Seen]:
        instances = [i for i in self._world.of[name] if isinstance(i.core.state, Active)]
        blank = unread(self._world.clock.now, len(instances))
        ordered = sorted(instances, key=lambda i: i.me)
        return [Seen(str(i.me), i.scaling.reading or blank) for i in ordered]


def _blank(world: World, model: Model) -> OperatorLook:
    name = OperatorName(model.name)
    return OperatorLook(
        name=model.name,
        scale=model.scale or Scale(max_instances=1),
        keyed=model.keyed is not None,
        upstream=tuple(map(str, world.upstream[name])),
        downstream=tuple(map(str, world.downstream[name])),
    )
