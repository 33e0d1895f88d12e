"""Any state and any event of an instance of operator b in a -> b -> c, likely or not."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import strategies as st

from anabranch.protocol import events, messages, states
from anabranch.protocol.events import Event, MessageReceived
from anabranch.protocol.ids import InstanceId
from anabranch.protocol.ownership import Route, Routes, owners_of
from anabranch.protocol.states import State
from tests.protocol.playbook import A0, A1, A2, B0, C0, C1, C2, CHILD, CHILD2, ME

UP, DOWN = (A0, A1, A2), (C0, C1, C2)
ups = st.frozensets(st.sampled_from(UP))
downs = st.frozensets(st.sampled_from(DOWN))
neighbours = st.sampled_from(UP + DOWN)
anybody = st.sampled_from((*UP, *DOWN, B0, CHILD))
children = st.frozensets(st.sampled_from((CHILD, CHILD2)), min_size=1)
told = st.frozensets(st.sampled_from((CHILD, CHILD2)))

siblings = st.sampled_from((B0, CHILD))
groups = st.frozensets(st.integers(0, 3), min_size=1)


def routes_to(owners: Iterable[InstanceId]) -> st.SearchStrategy[Routes]:
    """At most one route for each group, as tables have them."""
    route = st.builds(Route, st.sampled_from(tuple(owners)), st.integers(0, 3), st.integers(0, 2))
    return st.lists(route, max_size=3, unique_by=lambda r: r.group).map(
        lambda routes: tuple(sorted(routes, key=lambda r: r.group))
    )


routes = routes_to(DOWN)
owned = routes_to((ME,))
moved = routes_to((B0, CHILD))
joinings = st.builds(
    states.Joining,
    st.frozensets(st.sampled_from((CHILD, CHILD2))),
    st.frozensets(neighbours),
    downs,
    ups,
    migrate=st.just(False),
    moved=moved,
    leave=st.booleans(),
)
migrations = st.builds(
    states.Joining,
    st.just(frozenset({CHILD})),
    st.frozensets(neighbours),
    downs,
    ups,
    migrate=st.just(True),
    leave=st.booleans(),
)
owns = st.one_of(
    st.none(),
    st.builds(states.Spawning, st.integers(1, 3), st.booleans()),
    st.builds(states.Spawning, st.just(1), st.booleans(), st.just(True)),
    joinings,
    migrations,
    st.builds(states.Migrating, st.just(CHILD), st.booleans()),
    st.just(states.Offering()),
    st.builds(states.Seeking, groups, st.booleans()),
    st.builds(states.Freezing, told, moved, st.booleans()),
    moved.filter(bool).flatmap(
        lambda m: st.builds(
            states.Transferring, told, st.just(m), st.just(owners_of(m)), st.booleans()
        )
    ),
)
arrivals = st.lists(
    st.tuples(siblings, st.builds(messages.StateMoved, owned, routes)), max_size=1
).map(tuple)
any_state: st.SearchStrategy[State] = st.one_of(
    st.builds(states.Idle, downs, downs, ups, ups, ups, routes),
    st.builds(
        states.Active,
        downs,
        ups,
        st.booleans(),
        owns,
        ups,
        routes=routes,
        owned=owned,
        expects=st.frozensets(siblings),
        arrived=arrivals,
    ),
    st.builds(states.ClosingIn, downs, ups, ups, routes),
    st.builds(states.Draining, downs, routes),
    st.builds(states.ClosingOut, downs),
    st.builds(states.Finished, downs, ups, st.booleans()),
    st.builds(states.Gone, st.booleans(), st.sampled_from(("left", "finished"))),
)

joins = st.one_of(
    st.tuples(st.sampled_from(UP), st.builds(messages.Join, ups.filter(bool))),
    st.tuples(st.sampled_from(DOWN), st.builds(messages.Join, downs, routes)),
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
        st.builds(messages.AdoptOffer, st.integers(0, 3)),
        st.builds(messages.Adopt, siblings),
    ),
)
from_siblings = st.tuples(
    siblings,
    st.one_of(
        st.builds(messages.Start, downs, ups, st.booleans(), routes, st.booleans()),
        st.builds(messages.AdoptResponse, st.booleans()),
        st.builds(messages.StateMoved, owned, routes),
        st.just(messages.KeeperAck()),
        st.builds(messages.OfferResponse, st.booleans()),
    ),
)
received = st.one_of(joins, others, from_siblings).map(lambda pair: MessageReceived(*pair))
any_event: st.SearchStrategy[Event] = st.one_of(
    received,
    st.builds(events.Founded, downs, ups, st.booleans(), routes, owned),
    st.builds(events.BatchReceived, anybody, st.integers(1, 9)),
    st.builds(events.BatchReady, anybody, st.integers(1, 9)),
    st.builds(events.DuplicateDecided, st.integers(0, 3)),
    st.builds(events.LeaveDecided, st.none() | anybody, st.integers(0, 3)),
    st.builds(events.RelocateDecided, st.sampled_from(("", "plant-2"))),
    st.builds(events.MoveDecided, groups, st.none() | anybody, st.integers(0, 3)),
    st.builds(events.HandOverDecided, st.none() | anybody),
    st.builds(
        events.ChildrenReady,
        st.just(frozenset({CHILD})),
        st.lists(st.tuples(st.integers(0, 3), st.just(CHILD)), max_size=2).map(tuple),
    ),
    st.just(events.GroupsFrozen()),
    st.builds(events.GroupsTransferred, siblings),
    st.just(events.SpawnFailed("no room")),
    st.just(events.InputEnded()),
    st.just(events.Drained()),
    st.just(events.Restarted()),
)
