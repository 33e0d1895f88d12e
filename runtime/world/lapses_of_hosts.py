"""What may be neglected between a run and its hosts: the tunnel, new workers, epochs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.runtime.live.agent.controllers import Controllers
from anabranch.runtime.live.hosts.host_provider import CheckedProvider
from anabranch.runtime.live.process.remote_process import RemoteProcess
from anabranch.runtime.live.process.tunnel import Tunnel
from anabranch.runtime.world.far_hosts import FarHosts
from anabranch.runtime.world.lapses import Lapse
from anabranch.runtime.world.lapses_of_channels import does_nothing

Method = Callable[..., Any]


def _once_more(end: Method) -> Method:
    def forgetting(tunnel: Tunnel) -> None:
        if tunnel.expected > 1 and not tunnel._parts:
            tunnel._session.expected -= 1
        end(tunnel)

    return forgetting


def _only_new_ones(begin: Method) -> Method:
    def not_repeating(tunnel: Tunnel, expected: int) -> Any:
        taken = begin(tunnel, expected)
        tunnel._session.acknowledge(tunnel._session.next_number)
        tunnel._unsent.clear()
        return taken

    return not_repeating


def _never(_right: Method) -> Any:
    return staticmethod(lambda far, epoch: False)


def _unchecked(_right: Method) -> Method:
    return lambda checked, name: checked._provider.close(name)


def _forgotten(_right: Method) -> Method:
    return lambda controllers, policy: {}


LAPSES = (
    Lapse(
        "closes hosts unchecked",
        "a host closes as soon as it looks empty, though instances may still come to it",
        CheckedProvider,
        "close",
        _unchecked,
        "pool",
    ),
    Lapse(
        "forgets what controllers have left",
        "the controller of a resumed run knows nothing of what the last one has learnt",
        Controllers,
        "_left_by",
        _forgotten,
        "pool",
        crashes="all",
    ),
    Lapse(
        "takes messages twice after a break",
        "the last message that has come counts as not received",
        Tunnel,
        "end",
        _once_more,
        "hosts",
    ),
    Lapse(
        "repeats nothing after a break",
        "what was under way on a stream between hosts is lost with it",
        Tunnel,
        "begin",
        _only_new_ones,
        "hosts",
    ),
    Lapse(
        "waits for processes of a lost worker",
        "processes of a worker that is no more do not count as ended",
        RemoteProcess,
        "note_lost",
        does_nothing,
        "hosts",
        crashes="all",
    ),
    Lapse(
        "goes on with the worker of another epoch",
        "a host does not end what an agent that is no more has begun there",
        FarHosts,
        "_is_another",
        _never,
        "hosts",
        crashes="all",
    ),
)
