"""What commands that ask an agent have in common."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from anabranch.commands.failing import Refusal, WrongUsage
from anabranch.commands.telling import say
from anabranch.views.figures import count, duration

if TYPE_CHECKING:
    from anabranch.runtime.hosts.pipelines import PipelineStatus
    from anabranch.runtime.hosts.requests import AgentMessage

PORT = 7433
BIND = f"127.0.0.1:{PORT}"
TLS = "anabranch.tls"
"""In the context of a command."""
F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M", bound="AgentMessage")


def with_port(port: int, *, may_be_0: bool = False) -> Callable[..., str]:
    """For options and arguments HOST[:PORT]: with the port that is usual."""

    def checked(context: click.Context, parameter: click.Parameter, value: str) -> str:
        from anabranch.runtime.hosts.config import ConfigError
        from anabranch.runtime.hosts.config import with_port as completed

        if may_be_0 and value.endswith(":0"):
            return f"{checked(context, parameter, value[:-2]).rpartition(':')[0]}:0"
        try:
            return completed(value, port)
        except ConfigError as error:
            raise WrongUsage(f"{parameter.opts[0]}: {error}") from None

    return checked


def _keep_tls(context: click.Context, parameter: click.Parameter, value: Path | None) -> None:
    context.meta[TLS] = value


tls_option = click.option(
    "--tls",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="ANABRANCH_TLS",
    metavar="DIR",
    expose_value=False,
    callback=_keep_tls,
    help="Your certificate, for agents that ask for one; ~/.config/anabranch/tls for other "
    "machines.",
)


def tls_of(at: str) -> Path | None:
    """The folder of the certificate that the command shows at this address."""
    from anabranch.runtime.hosts.config import is_loopback

    given: Path | None = click.get_current_context().meta[TLS]
    if given is not None or is_loopback(at):
        return given
    usual = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "anabranch/tls"
    return usual if usual.is_dir() else None


def address_option(name: str) -> Callable[[F], F]:
    """And the certificate that is shown there (`tls_of`)."""
    option = click.option(
        name,
        "at",
        default=BIND,
        show_default=True,
        envvar="ANABRANCH_AT",
        metavar="HOST[:PORT]",
        callback=with_port(PORT),
        help="Where the agent listens.",
    )
    return lambda command: option(tls_option(command))


at_option = address_option("--at")
token_option = click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="A copy of the agent's token; by default the file itself, if you may read it.",
)


@contextmanager
def asking() -> Iterator[None]:
    """Report what an agent refuses, or that there is none, as commands do. So with words that
    cannot be sent."""
    from anabranch.runtime.live.hosts.client import AgentError

    try:
        yield
    except AgentError as error:
        raise (WrongUsage if error.wrong else Refusal)(str(error)) from None
    except UnicodeEncodeError as error:
        raise WrongUsage(f"{error.object!a}: expected a text in UTF-8") from None


def ask(at: str, token_file: Path | None, request: AgentMessage, kind: type[M]) -> M:
    """The reply of the agent to what only its user may ask. Raises `Refusal`, `WrongUsage`."""

    tls = tls_of(at)

    async def asked() -> M:
        from anabranch.runtime.hosts.pipelines import FRAME_BYTES_MAX
        from anabranch.runtime.live.hosts.client import AgentError, agent_at

        async with agent_at(at, token_file, FRAME_BYTES_MAX, tls) as agent:
            if agent.unproved:
                raise AgentError(agent.unproved, wrong=True)
            agent.ask(request)
            return await agent.reply(kind)

    with asking():
        return asyncio.run(asked())


def say_json(value: Any) -> None:
    import msgspec

    say(msgspec.json.encode(value).decode())


def say_pipelines(pipelines: Sequence[PipelineStatus]) -> None:
    """A line for each, and what it is about to print."""
    for one in pipelines:
        say(f"{one.id} on {one.host}: {one.state}{_in_figures(one.run)}")
        if one.message:
            say(f"  {one.message}")
        if away := (one.run or {}).get("away"):
            say(f"  waits for host {', '.join(away)}, which does not answer")
        for host, by in (one.run or {}).get("given_up", {}).items():
            whom = "by a majority of those with copies" if by == "majority" else "by a user"
            say(f"  goes on without host {host}, given up {whom}")
        for controller in (one.run or {}).get("controllers", []):
            say(f"  controller {_of_controller(controller)}")
        operators = (one.run or {}).get("operators", [])
        spreads = len({host for operator in operators for host in operator.get("hosts", ())}) > 1
        for operator in operators:
            name, instances = operator["name"], operator["instances"]
            load = f"load {operator['load']:.2f}, queue {operator['queued']}"
            pinned = operator.get("pinned")
            told = f" ({pinned} by `anabranch scale`)" if pinned is not None else ""
            many = "instance" if instances == 1 else "instances"
            where = _on_hosts(operator) if spreads else ""
            say(f"  {name}: {instances} {many}{where}{told}, {load}{_of_copies(operator)}")
            for instance, lacks in operator.get("lacks", {}).items():
                say(f"    {instance} {lacks}")


def _of_controller(told: dict[str, Any]) -> str:
    name = told["name"]
    if told["failed"]:
        return f"{name} decides nothing any more: {told['failed']}"
    if told["planned_ago_s"] is None:
        return f"{name} of {', '.join(told['operators'])}: no plan yet"
    wanted = ", ".join(f"{operator} {n}" for operator, n in told["wanted"].items()) or "no change"
    hosts = "" if told["hosts"] is None else f", hosts {told['hosts']}"
    return f"{name}, {duration(told['planned_ago_s'])} ago: {wanted}{hosts} ({told['why']})"


def _on_hosts(operator: dict[str, Any]) -> str:
    hosts = operator["hosts"]
    return f" on {', '.join(f'{name} ({n})' for name, n in hosts.items())}" if hosts else ""


def _of_copies(operator: dict[str, Any]) -> str:
    copies = operator.get("copies")
    return (
        f", copies on {', '.join(f'{host} ({n})' for host, n in copies.items())}" if copies else ""
    )


def _in_figures(run: dict[str, Any] | None) -> str:
    if run is None:
        return ""
    figures = f"; {duration(run['seconds'])}, {count(run['read'])} read"
    figures += f", {count(run['delivered'])} delivered"
    if run["dead_letters"]:
        figures += f", {count(run['dead_letters'])} dead letters"
    for fault in ("lost", "duplicated"):
        if run.get(fault):
            figures += f", {count(run[fault])} {fault}"
    return figures
