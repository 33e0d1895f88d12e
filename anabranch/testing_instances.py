"""Instances of a pipeline under test: what a test lets them do, and the keys that they have."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from anabranch.runtime.keyed.groups import GroupCache, plain_key
from anabranch.runtime.live.instance.instance import Instance
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.reporting.failure import Failure, RunFailed
from anabranch.runtime.values.checks import PipelineError, check_number
from anabranch.runtime.world.processes import WorldProcess
from anabranch.runtime.world.stepped import SteppedWorld
from anabranch.testing_ends import unlogged


class InstancesUnderTest:
    """Of a pipeline that runs in a world."""

    def __init__(self, pipeline: Pipeline, world: SteppedWorld) -> None:
        self._pipeline = pipeline
        self._world = world
        self._group_of = GroupCache(pipeline.groups)
        self._closed = False

    def instances(self, operator: str) -> list[int]:
        """The numbers of the operator's instances. A number is not used again."""
        return sorted(i.me.number for i in self._instances(operator))

    def join(self, operator: str, instances: int = 1) -> list[int]:
        """Let so many instances join, created by one that is there, which gives them a share of
        its keys. Returns their numbers."""
        before = self.instances(operator)
        check_number(f"join {operator!r}: instances", instances, whole=True)
        if instances < 1:
            raise PipelineError(f"{operator!r}: expected 1 or more instances, got {instances}")
        creator = min(self._instances(operator), key=lambda i: i.me.number)
        self._order(creator, "duplicate", instances)
        return self._changed(operator, before, f"{instances} instances of {operator!r} to join")

    def leave(self, operator: str, instance: int) -> None:
        """Let an instance leave; its keys go to the others."""
        leaver = self._instance(operator, instance)
        before = self.instances(operator)
        if len(before) == 1:
            raise PipelineError(
                f"{operator}.{instance} is the only instance of its operator: it cannot leave"
            )
        if self._world.is_keeper(leaver):
            self._order(leaver, "hand_over", 1)
        self._order(leaver, "leave", 1)
        self._changed(operator, before, f"{operator}.{instance} to leave")

    def relocate(self, operator: str, instance: int = 0) -> int:
        """Let a new instance take the place of one, as on another host: it gets its keys, and the
        old one leaves. Returns the number of the new one."""
        leaver = self._instance(operator, instance)
        before = self.instances(operator)
        self._order(leaver, "relocate", 1)
        (new,) = self._changed(operator, before, f"{operator}.{instance} to relocate")
        return new

    def crash(self, operator: str, instance: int = 0) -> None:
        """Kill the process of an instance, as `kill -9` does. Another one goes on in its place:
        what was not committed is done again."""
        process = self._process(self._instance(operator, instance))
        self._world.processes.kill_now(process)
        self._do(self._world.settle)

    def _order(self, instance: Instance, action: str, n: int) -> None:
        process = self._process(instance)
        process.loop.post(instance.orders.decide, action, n)
        self._do(self._world.settle)

    def _changed(self, operator: str, before: list[int], what: str) -> list[int]:
        after = self.instances(operator)
        if after == before:
            raise PipelineError(
                f"nothing has come of the order for {what}: {self._world.last_veto()}"
            )
        return sorted({*after} - {*before})

    # -- keys ------------------------------------------------------------------------------

    def group(self, key: Any) -> int:
        """The key group of a key, in this pipeline."""
        return self._group_of[plain_key(key)]

    def owner(self, operator: str, key: Any) -> int:
        """The number of the instance that has a key."""
        return self._owner(operator, self.group(key)).me.number

    def state(self, operator: str, key: Any) -> Any:
        """The state of a key; raises `KeyError` for a key without any."""
        keyed = self._owner(operator, self.group(key)).pump.keyed
        assert keyed is not None
        states, plain = keyed.states(), plain_key(key)
        if plain not in states:
            raise KeyError(f"operator {operator!r} has no state of key {key!r}")
        return states[plain]

    def move(self, operator: str, groups: Iterable[int], *, to: int) -> None:
        """Give key groups, with the state of their keys, to another instance, as scaling does."""
        for giver, given in self._givers(operator, groups, to):
            self._give(giver, given, to)
            self._do(self._world.settle)

    @contextmanager
    def moving(self, operator: str, groups: Iterable[int], *, to: int) -> Iterator[None]:
        """The same in two steps: inside `with` the groups are at rest, and so are the other keys of
        the instances that give them. Tuples for them wait, and are processed at the new owner."""
        chosen = frozenset(groups)
        for giver, given in self._givers(operator, chosen, to):
            keyed = giver.pump.keyed
            assert keyed is not None
            self._give(giver, given, to)
            self._do(partial(self._world.hold, self._process(giver), keyed))
        yield
        self._do(self._world.release)
        self.move(operator, chosen, to=to)  # what more than one could not give at once

    def _give(self, giver: Instance, groups: frozenset[int], to: int) -> None:
        siblings = [n for n in self.instances(giver.me.operator) if n != giver.me.number]
        self._process(giver).loop.post(giver.orders.move, groups, siblings.index(to))

    def _givers(
        self, operator: str, groups: Iterable[int], to: int
    ) -> list[tuple[Instance, frozenset[int]]]:
        """With what each is to give."""
        self._refuse_closed()
        known("keyed operator", operator, self._keyed)
        self._instance(operator, to)
        if not isinstance(groups, Iterable):
            raise PipelineError(f"expected key groups, such as [{groups!r}], got {groups!r}")
        chosen, most = frozenset(groups), self._pipeline.groups
        if unknown := chosen - set(range(most)):
            one = min(unknown, key=repr)
            raise PipelineError(
                f"no such key group: {one!r}; expected 0 to {most - 1}, as h.group(key) gives it"
            )
        found = [(i, chosen & i.membership.owned()) for i in self._instances(operator)]
        return [(i, given) for i, given in found if given and i.me.number != to]

    def _owner(self, operator: str, group: int) -> Instance:
        known("keyed operator", operator, self._keyed)
        return next(i for i in self._instances(operator) if group in i.membership.owned())

    @property
    def _keyed(self) -> list[str]:
        return [str(o.name) for o in self._pipeline.operators.values() if o.edges]

    # -- how -------------------------------------------------------------------------------

    def _instances(self, operator: str) -> list[Instance]:
        self._refuse_closed()
        known("operator", operator, self._pipeline.operators)
        return self._world.instances(operator)

    def _instance(self, operator: str, number: int) -> Instance:
        found = {i.me.number: i for i in self._instances(operator)}
        if number not in found:
            raise PipelineError(
                f"operator {operator!r} has no instance {number!r}: expected one of "
                f"{', '.join(map(str, sorted(found)))}; for more of them, "
                f"call h.join({operator!r})"
            )
        return found[number]

    def _process(self, instance: Instance) -> WorldProcess:
        return next(p for p, one in self._world.living() if one is instance)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise RuntimeError("the harness is closed; make another one")

    def _do(self, what: Callable[[], object]) -> None:
        """Raises `RunFailed` if the run fails meanwhile."""
        with unlogged():
            what()
        report = self._world.report()
        if report is not None and not report.ok:
            why = report.failure or "; ".join(report.ledger.faults) or f"it ended: {report.ended}"
            raise RunFailed(Failure(f"the run has failed: {why}"), report)


def known(kind: str, name: str, names: Iterable[str]) -> str:
    there = [*map(str, names)]
    if name in there:
        return name
    near = difflib.get_close_matches(str(name), there, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(there) or 'none'}"
    raise PipelineError(f"the pipeline has no {kind} {name!r}; {hint}")
