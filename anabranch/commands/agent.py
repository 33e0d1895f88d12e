"""`anabranch agent`: one process on each fog host, which knows the other hosts."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from anabranch.commands.failing import Refusal, WrongUsage

if TYPE_CHECKING:
    from anabranch.runtime.hosts.config import AgentConfig, Given

RUN = [sys.executable, "-P", "-m", "anabranch.cli", "run"]
"""`-P`: files of a pipeline do not take the place of Python's own modules."""
EXAMPLES = """\b
Examples:
  anabranch agent --config agent.toml
  anabranch agent --name press-1
  anabranch agent --name press-2 --bind 127.0.0.1:7434 --seed 127.0.0.1:7433
  anabranch hosts

\b
A file of settings, agent.toml, which may leave out any of them:
  name = "press-1"                # the name of this machine
  region = "plant-2"
  labels = { camera = "north" }
  cores = 4                       # offered to pipelines; all of this machine
  memory_mb = 2048
  bind = "127.0.0.1:7433"         # where it listens
  advertise = "127.0.0.1:7433"    # where others reach it; as bind
  seeds = ["127.0.0.1:7434"]      # hosts to ask for the others
  data = "/var/lib/anabranch"     # what outlives the agent
  tls = "/etc/anabranch/tls"      # its certificate; needed for other machines
  mdns = false                    # find agents on the LAN, and be found
  warm = 2                        # idle processes that each run keeps ready
  broker = "mqtts://b.plant/fog"  # for hosts that can only dial out
  log = "plain"                   # or json

\b
Each of them is also a variable of the environment, such as ANABRANCH_REGION or
ANABRANCH_LABELS=camera=north,rack=2, which counts more than the file; options count most.
Ctrl-C and SIGTERM let the host leave: the others are told, and its pipelines are stopped and kept
until the agent starts again. A second one ends it at once.
Exit code: 0 left, 1 it cannot go on, 2 wrong usage, 130 ended at once.
"""


@click.command(epilog=EXAMPLES)
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="ANABRANCH_CONFIG",
    metavar="FILE",
    help="Settings as TOML.",
)
@click.option("--name", metavar="NAME", help="Of this host, unlike all others.")
@click.option("--region", metavar="TEXT", help="Where the host is.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="May be repeated.")
@click.option("--cores", metavar="N", help="Offered to pipelines.")
@click.option("--memory-mb", metavar="N", help="Offered to pipelines.")
@click.option("--bind", metavar="HOST:PORT", help="Where to listen.")
@click.option("--advertise", metavar="HOST:PORT|broker", help="Where others reach it.")
@click.option(
    "--seed", "seeds", multiple=True, metavar="HOST:PORT", help="Another agent. May be repeated."
)
@click.option("--data", metavar="DIR", help="What outlives the agent.")
@click.option("--tls", metavar="DIR", help="Its certificate, as `anabranch ca issue` writes it.")
@click.option("--mdns/--no-mdns", default=None, help="Find agents on the LAN, and be found.")
@click.option("--broker", metavar="URL", help="For hosts that can only dial out.")
@click.option("--broker-login", metavar="file:PATH|env:NAME", help="Where user:password stands.")
@click.option("--broker-ca", metavar="FILE", help="Certificates that the broker is trusted by.")
@click.option("--broker-cert", metavar="FILE", help="A certificate for the broker.")
@click.option("--broker-key", metavar="FILE", help="Its key.")
@click.option("--warm", metavar="N", help="Idle processes that each run keeps ready.")
@click.option("--log", metavar="plain|json", help="Lines for people, or JSON.")
def command(config: Path | None, **options: Any) -> None:
    """Run the agent of this host until Ctrl-C or SIGTERM."""
    from anabranch.runtime.hosts.config import ConfigError

    try:
        settings = _config(config, options)
    except ConfigError as error:
        raise WrongUsage(str(error)) from None
    run_agent(settings)


def run_agent(config: AgentConfig) -> None:
    """Raises `Refusal`, `WrongUsage`."""
    from anabranch import __version__
    from anabranch.runtime.live.hosts.agent_log import AgentLog
    from anabranch.runtime.live.hosts.data_folder import FolderError, FolderFull
    from anabranch.runtime.live.hosts.host_agent import AgentFailed, HostAgent
    from anabranch.runtime.live.hosts.tls import TlsError

    async def run() -> None:
        log = AgentLog(config.name, as_json=config.log == "json")
        await HostAgent(config, __version__, log, RUN).run()

    try:
        asyncio.run(run())
    except FolderError as error:
        raise (Refusal if isinstance(error, FolderFull) else WrongUsage)(str(error)) from None
    except TlsError as error:
        raise WrongUsage(f"--tls: {error}") from None
    except AgentFailed as error:
        raise Refusal(str(error)) from None


def _config(file: Path | None, options: dict[str, Any]) -> AgentConfig:
    from anabranch.runtime.hosts.config import BIND, config_of, of_environment, of_file

    given: dict[str, Given] = {}
    if file is not None:
        given |= of_file(_text(file), str(file))
    given |= of_environment(os.environ)
    given |= _of_options(options)
    name = given["name"].value if "name" in given else _name_of_machine()
    usual: dict[str, Any] = {
        "name": name,
        "region": "",
        "labels": {},
        "cores": os.cpu_count() or 1,
        "memory_mb": _memory_mb(),
        "bind": BIND,
        "seeds": [],
        "data": str(_state_home() / "anabranch" / str(name)),
        "warm": 2,
        "tls": "",
        "mdns": False,
        "log": "plain",
        "broker": "",
        "broker_login": "",
        "broker_ca": "",
        "broker_cert": "",
        "broker_key": "",
    }
    config = config_of(given, usual)
    if config.mdns and not _has_zeroconf():
        raise WrongUsage(
            f"{given['mdns'].place}: mDNS needs the package zeroconf, which is not installed: "
            "pip install 'anabranch[mdns]'"
        )
    folders = {}
    for setting in ("data", "tls", "broker_ca", "broker_cert", "broker_key"):
        if path := getattr(config, setting):
            try:
                folders[setting] = str(Path(path).expanduser().absolute())
            except RuntimeError:
                raise WrongUsage(f"{given[setting].place}: {path}: no such user") from None
    kind, _, path = config.broker_login.partition(":")
    if kind == "file":
        folders["broker_login"] = f"file:{Path(path).absolute()}"
    return msgspec.structs.replace(config, **folders)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise WrongUsage(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise WrongUsage(f"{file}: expected a text in UTF-8") from None


def _of_options(options: dict[str, Any]) -> dict[str, Given]:
    from anabranch.runtime.hosts.config import SETTINGS, ConfigError, Given, labels_of

    given = {}
    for name, value in options.items():
        if value is None or value == ():
            continue
        option = f"--{name.removesuffix('s') if name in ('labels', 'seeds') else name}"
        option = option.replace("_", "-")
        try:
            if name == "labels":
                value = labels_of(value)
            elif name == "seeds":
                value = list(value)
            elif name != "mdns":
                value = SETTINGS[name].read(value)
        except ValueError:
            expected = "KEY=VALUE" if name == "labels" else SETTINGS[name].expected
            shown = ", ".join(value) if name == "labels" else value
            raise ConfigError(f"{option}: expected {expected}; got {shown!r}") from None
        given[name] = Given(value, option)
    return given


def _has_zeroconf() -> bool:
    try:
        import zeroconf  # noqa: F401
    except ImportError:
        return False
    return True


def _name_of_machine() -> str:
    name = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname().partition(".")[0])[:63]
    return name.lstrip("._-") or "host"


def _memory_mb() -> int:
    return max(1, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20)


def _state_home() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
