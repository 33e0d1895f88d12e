"""Any state and any event of an instance of operator b in a -> b -> c, likely or not."""

from __future__ import annotations

from hypothesis import strategies as st

from anabranch.protocol import events, messages, states
from anabranch.protocol.events import Event, MessageReceived
from anabranch.protocol.states import State
from tests.protocol.playbook import A0, A1, A2, B0, C0, C1, C2, CHILD, CHILD2

UP, DOWN = (A0, A1, A2), (C0, C1, C2)
ups = st.frozensets(st.sampled_from(UP))
downs = st.frozensets(st.sampled_from(DOWN))
neighbours = st.sampled_from(UP + DOWN)
anybody = st.sampled_from((*UP, *DOWN, B0, CHILD))
children = st.frozensets(st.sampled_from((CHILD, CHILD2)), min_size=1)
told = st.frozensets(st.sampled_from((CHILD, CHILD2)))

joinings = st.builds(
    states.Joining, children, st.frozensets(neighbours), downs, ups, migrate=st.just(False)
)
migrations = st.builds(
    states.Joining,
    st.just(frozenset({CHILD})),
    st.frozensets(neighbours),
    downs,
    ups,
    migrate=st.just(True),
)
owns = st.one_of(
    st.none(),
    st.builds(states.Spawning, st.integers(1, 3), st.booleans()),
    joinings,
    migrations,
    st.just(states.Migrating(CHILD)),
    st.just(states.Offering()),
)
any_state: st.SearchStrategy[State] = st.one_of(
    st.builds(states.Idle, downs, downs, ups, ups, ups),
    st.builds(states.Active, downs, ups, st.booleans(), owns, ups),
    st.builds(states.ClosingIn, downs, ups, ups),
    st.builds(states.Draining, downs),
    st.builds(states.ClosingOut, downs),
    st.builds(states.Finished, downs, ups, st.booleans()),
    st.builds(states.Gone, st.booleans()),
)

joins = st.one_of(
    st.tuples(st.sampled_from(UP), st.builds(messages.Join, ups.filter(bool))),
    st.tuples(st.sampled_from(DOWN), st.builds(messages.Join, downs.filter(bool))),
)
others = st.tuples(
    neighbours,
    st.one_of(
        st.just(messages.JoinAck()),
        st.builds(messages.Leave, told),
        st.just(messages.LeaveAck()),
        st.builds(messages.Eos, told),
        st.just(messages.EosAck()),
        st.just(messages.Offer()),
        st.builds(messages.BecomeKeeper, st.just(B0)),
        st.just(messages.Fin()),
        st.just(messages.Done()),
    ),
)
from_siblings = st.tuples(
    st.sampled_from((B0, CHILD)),
    st.one_of(
        st.builds(messages.Start, downs, ups, st.booleans()),
        st.just(messages.KeeperAck()),
        st.builds(messages.OfferResponse, st.booleans()),
    ),
)
received = st.one_of(joins, others, from_siblings).map(lambda pair: MessageReceived(*pair))
any_event: st.SearchStrategy[Event] = st.one_of(
    received,
    st.builds(events.Founded, downs, ups, st.booleans()),
    st.builds(events.BatchReceived, anybody, st.integers(1, 9)),
    st.builds(events.BatchReady, anybody, st.integers(1, 9)),
    st.builds(events.DuplicateDecided, st.integers(0, 3)),
    st.just(events.LeaveDecided()),
    st.builds(events.HandOverDecided, st.none() | anybody),
    st.builds(events.ChildrenReady, st.just(frozenset({CHILD}))),
    st.just(events.SpawnFailed("no room")),
    st.just(events.InputEnded()),
    st.just(events.Drained()),
)
