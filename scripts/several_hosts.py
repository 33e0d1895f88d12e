#!/usr/bin/env python3
"""One pipeline on three hosts, which are cut off, drained, switched off and on; results equal what
one process would have given.

    sudo scripts/several_hosts.py                 three network namespaces; a cut of 60 s
    sudo scripts/several_hosts.py --cut 10        a shorter one
    sudo scripts/several_hosts.py --lose          one host is lost for good, and nothing else
    scripts/several_hosts.py --keep DIR           keep what the hosts have written

Each host is a network namespace with an address and a certificate of its own, and the command that
submits has another one. Exit code: 0 all is right, 1 it is not, 77 namespaces cannot be made here.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hosts.network import Network, NoNamespaces, network
from hosts.pipeline import write_into, wrong_keys

NAMES = ("home", "north", "south")
COMMAND = [sys.executable, "-m", "anabranch.cli"]
PORT = 7433
PATIENCE_S = 240.0
NO_NAMESPACES = 77


class Hosts:
    """Agents in namespaces, and the commands of a user outside of them."""

    def __init__(self, net: Network, folder: Path) -> None:
        self._net = net
        self._folder = folder
        self._agents: dict[str, subprocess.Popen[bytes]] = {}
        ca = ["--ca", str(folder / "ca")]
        self._call("ca", "init", *ca)
        for name in NAMES:
            out = ["--out", str(folder / "tls" / name)]
            self._call("ca", "issue", name, "--address", net.address(name), *out, *ca)
        self._user = folder / "tls" / "user"
        self._call("ca", "issue", "user", "--role", "operate", "--out", str(self._user), *ca)

    def start(self, name: str) -> None:
        net, seed = self._net, f"{self._net.address('home')}:{PORT}"
        options = ["--name", name, "--data", str(self._folder / name), "--cores", "2"]
        options += ["--region", "office" if name == "home" else "plant", "--memory-mb", "4096"]
        options += ["--bind", f"{net.address(name)}:{PORT}", "--warm", "1"]
        options += ["--tls", str(self._folder / "tls" / name)]
        options += [] if name == "home" else ["--seed", seed]
        with (self._folder / f"{name}.log").open("ab") as log:
            words = [*net.within(name), *COMMAND, "agent", *options]
            self._agents[name] = subprocess.Popen(words, stderr=log, stdout=log)

    def power_off(self, name: str) -> None:
        self._net.power_off(name)
        self._agents[name].wait()

    def end(self) -> None:
        for agent in self._agents.values():
            if agent.poll() is None:
                agent.terminate()
        for agent in self._agents.values():
            agent.wait(60)

    def submit(self, words: list[str]) -> None:
        self._call("submit", *words, "--to", self._at("home"), *self._tls)

    def command(self, *words: str) -> None:
        self._call(*words, "--at", self._at("home"), *self._tls)

    def asked(self, *words: str) -> Any:
        return json.loads(self._call(*words, "--at", self._at("home"), *self._tls, "--json"))

    def run(self) -> dict[str, Any]:
        (pipeline,) = self.asked("status")["pipelines"]
        return dict(pipeline["run"] or {}) | {"state": pipeline["state"]}

    def there(self) -> dict[str, int]:
        """Instances by host."""
        counts: dict[str, int] = {}
        for operator in self.run().get("operators", []):
            for host, n in operator["hosts"].items():
                counts[host] = counts.get(host, 0) + n
        return counts

    def lacks(self) -> dict[str, str]:
        """By instance what is missing of the copies of its journal."""
        found: dict[str, str] = {}
        for operator in self.run().get("operators", []):
            found |= operator["lacks"]
        return found

    @property
    def _tls(self) -> list[str]:
        return ["--tls", str(self._user)]

    def _at(self, name: str) -> str:
        return f"{self._net.address(name)}:{PORT}"

    def _call(self, *words: str) -> str:
        done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"anabranch {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout


def main() -> int:
    args = parse()
    try:
        with folder_of(args.keep) as folder, network(NAMES) as net:
            hosts = Hosts(net, folder)
            try:
                return trial(hosts, net, folder, args)
            finally:
                hosts.end()
    except NoNamespaces as error:
        print(f"cannot be tried here: {error}", flush=True)
        return NO_NAMESPACES


def trial(hosts: Hosts, net: Network, folder: Path, args: argparse.Namespace) -> int:
    began = time.monotonic()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - began:6.1f} s  {text}", flush=True)

    for name in NAMES:
        hosts.start(name)
    until(lambda: alive(hosts) == set(NAMES), "the hosts know each other")
    durable = "hosts" if args.lose else "process"
    hosts.submit(write_into(folder / "mine", args.rate, durable))
    goes_on(hosts)
    tell(f"submitted to home; instances {hosts.there()}")
    hosts.command("scale", "counted", "up", "5")
    hosts.command("scale", "counted", "total", "3")
    until(lambda: sum(hosts.there().values()) == 10, "it has scaled")
    goes_on(hosts)
    tell(f"scaled; instances {hosts.there()}")
    if args.lose:
        lose_for_good(hosts, folder, tell)
        return verdict(hosts, folder, tell)
    victim = max(("north", "south"), key=lambda name: hosts.there().get(name, 0))
    other = "south" if victim == "north" else "north"
    net.cut(victim)
    tell(f"{victim} is cut off")
    time.sleep(args.cut)
    net.heal(victim)
    goes_on(hosts)
    tell(f"healed after {args.cut:g} s; goes on, {hosts.run()['delivered']} results")
    hosts.power_off(victim)
    time.sleep(args.off)
    hosts.start(victim)
    goes_on(hosts)
    tell(f"{victim} was switched off for {args.off:g} s; goes on, instances {hosts.there()}")
    hosts.command("drain", victim)
    until(lambda: not hosts.there().get(victim), f"{victim} is drained")
    goes_on(hosts)
    tell(f"{victim} is drained; instances {hosts.there()}")
    hosts.command("drain", victim, "--undo")
    hosts.power_off("home")
    hosts.start("home")
    goes_on(hosts)
    tell("home was switched off and on; goes on")
    hosts.power_off(other)
    hosts.power_off("home")
    for name in ("home", other):
        hosts.start(name)
    goes_on(hosts)
    tell(f"home and {other} were switched off together; goes on")
    return verdict(hosts, folder, tell)


def lose_for_good(hosts: Hosts, folder: Path, tell: Callable[[str], None]) -> None:
    """A host, with its disk: its instances go on elsewhere, from copies of their journals."""
    until(lambda: not hosts.lacks(), "all journals have copies")
    lost = max(("north", "south"), key=lambda name: hosts.there().get(name, 0))
    before = hosts.there()
    hosts.power_off(lost)
    shutil.rmtree(folder / lost)
    told = hosts.asked("give-up", lost, "--yes")
    if told["refused"]:
        raise RuntimeError(f"{lost} is not given up: {told['refused']}")
    until(lambda: not hosts.there().get(lost), f"nothing is on {lost}")
    goes_on(hosts)
    tell(f"{lost} is lost for good, with {before.get(lost, 0)} instances; goes on, {hosts.there()}")
    hosts.start(lost)
    until(lambda: alive(hosts) == set(NAMES), f"{lost} is there again, with an empty disk")
    until(lambda: not hosts.lacks(), "all journals have copies again")
    goes_on(hosts)
    tell(f"another {lost} is there; goes on, instances {hosts.there()}")


def verdict(hosts: Hosts, folder: Path, tell: Callable[[str], None]) -> int:
    hosts.command("stop", "counted")
    until(lambda: hosts.run()["state"] not in ("running", "ending", "closing"), "it ends")
    ended = hosts.run()
    (path,) = (folder / "home").glob("pipelines/*/files/out.jsonl")
    wrong = wrong_keys(path.read_text().splitlines(), ended["read"])
    figures = {name: ended.get(name) for name in ("read", "delivered", "lost", "duplicated")}
    tell(f"{ended['state']}: {figures}; keys with wrong results: {len(wrong)}")
    for key, what in [*wrong.items()][:5]:
        print(f"  {key}: {what}")
    good = ended["state"] == "finished" and not wrong
    print("all is right" if good else "NOT right", flush=True)
    return 0 if good else 1


def alive(hosts: Hosts) -> set[str]:
    try:
        told = hosts.asked("hosts")["hosts"]
    except RuntimeError:
        return set()
    return {host["name"] for host in told if host["state"] == "alive"}


def goes_on(hosts: Hosts) -> None:
    """Return when a good many more results have been delivered."""
    before: list[int] = []

    def more() -> bool:
        try:
            now = int(hosts.run().get("delivered", 0))
        except RuntimeError:
            return False
        before.append(now)
        return now > before[0] + 500

    until(more, "it goes on")


def until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {PATIENCE_S:g} s: {what}")
        time.sleep(0.2)


@contextmanager
def folder_of(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True)
        yield kept.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="anabranch-hosts-") as folder:
        yield Path(folder)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cut", type=float, default=60.0, metavar="S", help="how long a host is")
    parser.add_argument("--off", type=float, default=5.0, metavar="S", help="how long a host is")
    parser.add_argument("--lose", action="store_true", help="lose a host for good")
    parser.add_argument("--rate", type=int, default=1000, help="texts per second")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="a new folder")
    return parser.parse_args()


if __name__ == "__main__":
    os.environ.setdefault("NO_COLOR", "1")
    sys.exit(main())
