"""A whole run in one process and one loop: real instances, real sockets, a make-believe agent.

It serves children and splits at once, collects what instances say, and can be asked to decide for
any of them. What it cannot show is process incarnation; for that there are the tests of the agent.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from anabranch.protocol.errors import ChannelError
from anabranch.protocol.ids import InstanceId, OperatorName
from anabranch.protocol.invariants import broken_in
from anabranch.protocol.limits import Limits
from anabranch.protocol.messages import Ids
from anabranch.protocol.states import Active, Gone, Idle
from anabranch.runtime.live.channel.connection import Connection
from anabranch.runtime.live.instance.agent_client import AgentClient
from anabranch.runtime.live.instance.beginning import begin_patiently
from anabranch.runtime.live.instance.instance import Instance
from anabranch.runtime.live.instance.profile import profile_of
from anabranch.runtime.live.link.messages import (
    Claim,
    EventNote,
    MayLeave,
    Release,
    Resumed,
    Spawn,
    SplitAnswer,
    StaysAfterAll,
)
from anabranch.runtime.pipeline.graph import Pipeline
from anabranch.runtime.plan.ends import DeadLetter, RunContext, Sink, Split, Writer
from anabranch.runtime.ports import clock
from anabranch.runtime.reporting.ledger import settle
from anabranch.runtime.reporting.status import FinalCount, id_from_wire
from anabranch.runtime.storage.patience import Patience
from tests.runtime.processes import PATIENCE_S

TOKEN = b"network"


class Kept(Sink):
    """A sink that remembers, for all its instances together, and per instance in order."""

    def __init__(self, delay_s: float = 0.0) -> None:
        self.tuples: list[Any] = []
        self.delay_s = delay_s

    def open(self, context: RunContext) -> Writer:
        return KeptWriter(self)


class KeptWriter(Writer):
    def __init__(self, sink: Kept) -> None:
        self.sink = sink

    async def write(self, tuples: list[Any]) -> list[DeadLetter]:
        if self.sink.delay_s:
            await asyncio.sleep(self.sink.delay_s * len(tuples))
        self.sink.tuples += tuples
        return []


class NetworkClient(AgentClient):
    def __init__(self, network: Network, me: InstanceId) -> None:
        super().__init__()
        self.network = network
        self.me = me

    def send(self, message: Any) -> None:
        self.network.take(self, message)


def _dead() -> None:
    """Nothing is done any more."""


def _deaf(*_: Any) -> Any:
    raise ChannelError("it is dead")


def _hang_up(connection: Connection) -> None:
    assert connection._transport is not None
    connection._transport.abort()


class Network:
    """`journals`: instances keep them, and can be killed."""

    def __init__(
        self, pipeline: Pipeline, folder: Path, *, journals: bool = False, **limits: Any
    ) -> None:
        self.pipeline = pipeline
        self.folder = folder
        self.limits = Limits(reconnect_first_s=0.001, **limits)
        self.instances: dict[InstanceId, Instance] = {}
        self.running: dict[InstanceId, asyncio.Task[str]] = {}
        self.final: list[FinalCount] = []
        self.notes: Counter[str] = Counter()
        self.others: list[Any] = []
        """What else is said to the agent, and is no note, claim or the like."""
        self.rng = random.Random(0)
        self.journals = journals
        self.deaths = 0
        self._numbers: Counter[str] = Counter()
        self._claims: Counter[str] = Counter()
        self._held: dict[InstanceId, SplitAnswer] = {}
        self._boards = {
            name: list(operator.source.splits())
            for name, operator in pipeline.operators.items()
            if operator.source
        }
        self._holding: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._addresses: dict[InstanceId, str] = {}
        self._bootstrap: dict[InstanceId, tuple[Ids, Ids, list[InstanceId]]] = {}

    # -- what instances ask for ------------------------------------------------------------

    def take(self, agent_client: NetworkClient, message: Any) -> None:
        match message:
            case Spawn(n=n):
                task = asyncio.get_running_loop().create_task(self._spawn(agent_client, n))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            case Claim():
                asyncio.get_running_loop().call_soon(self._serve, agent_client)
            case Release(remainder=remainder, number=number):
                self._release(agent_client, remainder, number)
            case EventNote(event=event):
                self.notes[event] += 1
            case FinalCount():
                self.final.append(message)
            case Resumed(children=children):
                self._discard(agent_client.me, {id_from_wire(c) for c in children})
                self.others.append(message)
            case MayLeave() | StaysAfterAll():
                self.others.append(message)

    def _serve(self, agent_client: NetworkClient) -> None:
        operator, board = agent_client.me.operator, self._boards[agent_client.me.operator]
        if agent_client.me in self._held:
            agent_client._answered(self._held[agent_client.me])
        elif board:
            self._holding[operator] += 1
            self._claims[operator] += 1
            number = self._claims[operator]
            answer = SplitAnswer(split=board.pop(0), ended=False, number=number)
            self._held[agent_client.me] = answer
            agent_client._answered(answer)
        else:
            agent_client._answered(SplitAnswer(split=None, ended=not self._holding[operator]))

    def _release(self, agent_client: NetworkClient, remainder: Split | None, number: int) -> None:
        operator = agent_client.me.operator
        held = self._held.get(agent_client.me)
        if held is None or held.number != number:
            return  # an earlier incarnation has said so
        del self._held[agent_client.me]
        self._holding[operator] -= 1
        if remainder is not None:
            self._boards[operator].insert(0, remainder)
        for me, instance in self.instances.items():
            if me.operator == operator:
                instance.agent_client._news.set()

    async def _spawn(self, agent_client: NetworkClient, n: int) -> None:
        creator = agent_client.me
        children = [await self._make(creator.operator, creator.number) for _ in range(n)]
        parent = self.instances[creator]
        if parent.agent_client is not agent_client or (
            parent.commits is not None and parent.commits.closed
        ):
            for child in (
                self.instances.keys() & children
            ):  # it has died since, and knows nothing of them
                self._drop(child)
            return
        parent.neighbourhood.learn({c: self._addresses[c] for c in children})
        parent.orders.children_ready(frozenset(children))

    async def _make(self, operator: OperatorName, creator: int) -> InstanceId:
        me = InstanceId(operator, self._numbers[operator], creator)
        self._numbers[operator] += 1
        await self._begin(me, incarnation=1)
        return me

    async def _begin(self, me: InstanceId, incarnation: int) -> None:
        context = RunContext(
            pipeline=self.pipeline.name,
            operator=me.operator,
            instance=str(me),
            run_dir=self.folder,
            started_s=clock.monotonic(),
            limits=self.limits,
            token=TOKEN,
            incarnation=incarnation,
            durable=self.pipeline.durable_of(me.operator),
        )
        agent_client = NetworkClient(self, me)
        journal = self.folder / f"{me}.journal" if self.journals else None
        profile = profile_of(
            me, self.pipeline, context, journaled=self.journals, was_ready=incarnation > 1
        )
        patience = Patience(str(me), agent_client.note)
        instance = Instance(
            profile,
            await begin_patiently(profile, journal, patience),
            agent_client=agent_client,
            patience=patience,
            seed=incarnation,
            scaling=False,
        )
        self.instances[me] = instance
        task = self.running[me] = asyncio.get_running_loop().create_task(self._live(instance))
        self._addresses[me] = await instance.neighbourhood.listen(f"unix:{self.folder}/{me}")
        if self.running.get(me) is not task:  # it was discarded meanwhile
            instance.neighbourhood._listener.close()
            return
        instance.resume()
        if me in self._bootstrap and isinstance(instance.core.state, Idle):
            self._found(me)

    def kill(self, me: InstanceId) -> None:
        """Let an instance die where it stands; it does not come back before `revive`."""
        instance = self.instances[me]
        self.running.pop(me).cancel()
        for task in [*instance.lifetime._tasks, *instance.neighbourhood._tasks]:
            task.cancel()
        if instance.path.letter_writer._task is not None:
            instance.path.letter_writer._task.cancel()
        instance.lifetime.ended.cancel()
        instance.pump.stop = instance.pump.send = _dead  # type: ignore[method-assign]
        assert instance.commits is not None
        instance.commits.abandon()
        neighbourhood = instance.neighbourhood
        neighbourhood._listener.close()
        for connection in list(neighbourhood._connections):
            if connection._transport is not None:
                connection._transport.abort()
                connection._transport = None
        for channel in neighbourhood.channels:
            channel.line.ended = True
            channel.line._wire = None
            channel.statements.cancel()
        instance.path.watermarks.close()
        neighbourhood.channel_of_dialer = _deaf  # type: ignore
        neighbourhood.connection_opened = _hang_up  # type: ignore[method-assign]
        self.deaths += 1

    async def revive(self, me: InstanceId) -> None:
        if me in self.instances:  # and not discarded meanwhile
            await self._begin(me, incarnation=self.instances[me].profile.context.incarnation + 1)

    async def die_and_go_on(self, many: list[InstanceId]) -> None:
        """All of them die before the first one is revived."""
        for me in many:
            self.kill(me)
        for me in many:
            await self.revive(me)

    def mortals(self, operator: str | None = None) -> list[InstanceId]:
        """Those which run, and could die."""
        return [
            me
            for me, task in self.running.items()
            if not task.done() and operator in (None, me.operator)
        ]

    async def abandon(self) -> None:
        """Nobody goes on, and no file stays open."""
        for me in list(self.running):
            self.kill(me)
        await asyncio.sleep(0.01)

    def _discard(self, creator: InstanceId, known: set[InstanceId]) -> None:
        """Children that a new incarnation has never heard of end."""
        for me, instance in list(self.instances.items()):
            idle = isinstance(instance.core.state, Idle)
            mine = (me.operator, me.creator) == (creator.operator, creator.number)
            if mine and idle and me not in known:
                self._drop(me)

    def _drop(self, me: InstanceId) -> None:
        """One that has never taken part ends."""
        if me in self.running:
            self.kill(me)
            self.deaths -= 1
        self.instances.pop(me, None)

    async def _live(self, instance: Instance) -> str:
        reason = await instance.run()
        self._give_back(instance.me)
        self.final.append(instance.final_count())
        return reason

    def _give_back(self, me: InstanceId) -> None:
        """What an earlier incarnation had claimed, and no later one has heard of."""
        if (held := self._held.get(me)) is not None:
            self._release(self.instances[me].agent_client, held.split, held.number)  # type: ignore[arg-type]

    # -- what a test does --------------------------------------------------------------------

    async def start(self, instances: int = 1) -> None:
        names = list(self.pipeline.operators)
        members = {n: [await self._make(n, -1) for _ in range(instances)] for n in names}
        topology = self.pipeline.topology
        for name, ids in members.items():
            succs = frozenset(x for o in topology.downstream(name) for x in members[o])
            preds = frozenset(x for o in topology.upstream(name) for x in members[o])
            for me in ids:
                self._bootstrap[me] = succs, preds, ids
                self._found(me)

    def _found(self, me: InstanceId) -> None:
        succs, preds, ids = self._bootstrap[me]
        self.instances[me].neighbourhood.learn(self._addresses)
        self.instances[me].orders.found(succs, preds, ids, keeper=me.number == 0)

    def of(self, operator: str) -> list[Instance]:
        """Instances of an operator which have not gone."""
        return [
            i
            for me, i in self.instances.items()
            if me.operator == operator and not isinstance(i.core.state, Gone)
        ]

    def decide(self, operator: str, action: str, n: int = 1) -> None:
        """Let a random instance of an operator be told to duplicate, leave or hand over."""
        candidates = [i for i in self.of(operator) if i.lifetime.began.is_set()]
        if candidates:
            self.rng.choice(candidates).orders.decide(action, n)

    async def until(self, condition: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
        """Let the run go on until the condition holds. Raises what makes an instance fail."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                await asyncio.sleep(0.005)
                for task in self.running.values():
                    if task.done():
                        task.result()

    def at_rest(self) -> bool:
        """Whether nobody starts, joins, leaves or hands over."""
        states = [i.core.state for i in self.instances.values()]
        active = [s for s in states if isinstance(s, Active)]
        gone = [s for s in states if isinstance(s, Gone)]
        return len(active) + len(gone) == len(states) and all(s.own is None for s in active)

    async def finish(self, timeout_s: float = PATIENCE_S) -> None:
        """Until every instance has gone; raises what made one fail."""
        try:
            await self._all_gone(timeout_s)
        except TimeoutError:
            raise AssertionError("still there:\n" + "\n".join(self.stuck())) from None

    async def _all_gone(self, timeout_s: float) -> None:
        async with asyncio.timeout(timeout_s):
            while pending := [t for t in self.running.values() if not t.done()]:
                done, _ = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            for task in self.running.values():
                task.result()
            # The loop would end before the last connections are closed.
            while any(i.neighbourhood._connections for i in self.instances.values()):  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    def stuck(self) -> list[str]:
        """Who has not ended, in which state, waiting for what."""
        return [
            f"{me}: {type(i.core.state).__name__} {getattr(i.core.state, 'own', '')}, "
            f"{i.path.intake.tuples} queued, {i.path.outbox.held} held, "
            f"pump drained: {i.pump.drained}, "
            f"unsettled: {[str(c.peer) for c in i.neighbourhood.channels if not c.session.settled]}"
            for me, i in self.instances.items()
            if not self.running[me].done()
        ]

    def broken(self) -> list[str]:
        """Invariants that do not hold now, among instances whose views are settled."""
        world = {me: i.core.state for me, i in self.instances.items()}
        return list(broken_in(self.pipeline.topology, world))

    def unbalanced(self) -> list[str]:
        """Sentences about channels and instances whose counts do not agree, at the end."""
        words, told_apart = [], True
        by_name = {f.id: f for f in self.final}
        for f in self.final:
            taken, done = f.tuples_in + f.handed_in, f.processed + f.dead + f.handed_out
            if taken != done or f.queued:
                words.append(f"{f.id}: {taken} taken, {done} done, {f.queued} queued")
            for peer, n in f.sent.items():
                found = by_name[peer].received.get(f.id)
                if found is None and f.operator in by_name[peer].received_before:
                    told_apart = False  # so many have gone that their accounts are summed
                elif found != n:
                    words.append(f"{f.id} -> {peer}: {n} != {found}")
        if not told_apart:
            words += settle(
                self.final, self.pipeline.topology.edges, list(self.pipeline.operators)
            ).faults
        return words
