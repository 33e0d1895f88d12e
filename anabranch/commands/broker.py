"""`anabranch broker`: a broker of MQTT on this machine, for trials and tests."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import signal
import socket

import click

from anabranch.commands.failing import WrongUsage
from anabranch.commands.telling import say

LOOPBACK = "127.0.0.1"
EXAMPLES = """\b
Examples:
  anabranch broker
  anabranch broker --port 0

It has no passwords, so it listens on loopback only, and it keeps what it has in memory: sessions
and retained messages end with it. It speaks MQTT 3.1.1, without shared subscriptions, and does not
send again what was under way when a connection broke. For real work use one such as mosquitto.
"""


@click.command(epilog=EXAMPLES)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=1883,
    show_default=True,
    help="Where to listen; 0: any free port.",
)
def command(port: int) -> None:
    """Run a broker of MQTT on this machine until Ctrl-C, for trials."""
    if importlib.util.find_spec("amqtt") is None:
        raise WrongUsage(
            "this needs the package amqtt, which is not installed: pip install 'anabranch[broker]'"
        )
    asyncio.run(_serve(_free(port)))


async def _serve(port: int) -> None:
    from amqtt.broker import Broker

    logging.getLogger("amqtt").setLevel(logging.ERROR)
    logging.getLogger("transitions").setLevel(logging.ERROR)
    broker = Broker(
        {
            "listeners": {"default": {"type": "tcp", "bind": f"{LOOPBACK}:{port}"}},
            "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {}},
        }
    )
    await broker.start()
    say(f"a broker listens at mqtt://{LOOPBACK}:{port}; Ctrl-C ends it")
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, over.set)
    await over.wait()
    with contextlib.suppress(Exception):  # clients that are still there
        await asyncio.wait_for(broker.shutdown(), 5.0)


def _free(port: int) -> int:
    """This port, or any for 0. It is tried here, since the broker would log a traceback."""
    try:
        with socket.create_server((LOOPBACK, port)) as found:
            return int(found.getsockname()[1])
    except OSError as error:
        raise WrongUsage(
            f"cannot listen on {LOOPBACK}:{port}: {os.strerror(error.errno or 0)}; "
            "does a broker run already? --port 0 takes any free port"
        ) from error
