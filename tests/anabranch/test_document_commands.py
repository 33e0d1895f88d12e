"""Commands that documents show can be called so; links lead somewhere; two pages stay short."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import anabranch as ab
from anabranch.cli import main
from anabranch.runtime.policies.script import parse_script
from tests.runtime.processes import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(p for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")] if p.name != "CHANGELOG.md")
NAMES = [p.relative_to(ROOT).as_posix() for p in PAGES]

SIZES = {"README.md": 9_000, "ARCHITECTURE.md": 15_000}
"""In bytes: what a newcomer reads first is read to its end."""


def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def code_lines(page: str) -> Iterator[str]:
    """Lines of blocks, fenced or indented, but for those in Python; continued ones as one."""
    page_text = re.sub(r"```python\n.*?```", "", text(page), flags=re.DOTALL)
    fenced = "\n".join(re.findall(r"```\w*\n(.*?)```", page_text, re.DOTALL))
    indented = "\n".join(re.findall(r"^    (.*)$", page_text, re.MULTILINE))
    yield from f"{fenced}\n{indented}".replace("\\\n", " ").splitlines()


def commands(page: str) -> Iterator[str]:
    in_prose = re.findall(r"`((?:anabranch|scripts)[ /][^`\n]*)`", text(page))
    for line in [*code_lines(page), *in_prose]:
        found = re.match(r"(?:\$ )?(?:ExecStart=\S*/)?((?:anabranch|scripts/\w[\w.]*)\b.*)", line)
        if found and not found[1].startswith(("anabranch/", "anabranch:", "anabranch ->")):
            yield re.split(r"  +#|\s+&(?:\s|$)| \| |  +[a-z]", found[1])[0].strip()


def shown() -> list[tuple[str, str]]:
    return [(page, command) for page in NAMES for command in dict.fromkeys(commands(page))]


PLACEHOLDERS = {"FILE", "NAME", "SEED", "FOLDER", "DIR", "RULE"}
VALUES = {"FILE.py[:NAME]": "a.py", "[FILE.py]": "a.py", "SEED": "7", "NAME": "belkhiria2019"}


def words_of(command: str) -> list[str]:
    return [VALUES.get(word, word) for word in shlex.split(command) if word != "…"]


@pytest.mark.parametrize(("page", "command"), [c for c in shown() if c[1].startswith("anabranch")])
def test_a_command_is_one_that_there_is(
    page: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("FOLDER").mkdir()
    _, *words = words_of(command)
    # With its settings: what it answers about options first, it keeps.
    group, name = click.Context(main, info_name="anabranch", **main.context_settings), ""
    reached: click.Command = main
    while isinstance(reached, click.Group) and words and not words[0].startswith("-"):
        name, *words = words
        found = reached.get_command(group, name)
        assert found is not None, f"{page}: {command}: no command {name!r}"
        reached = found
    known = {option for p in reached.get_params(group) for option in (*p.opts, *p.secondary_opts)}
    for word in words:
        if word.startswith("--"):
            assert word.split("=")[0] in known, f"{page}: {command}: no option {word}"
    whole = name == "verify" or any(not w.startswith("-") for w in words[:1])
    if name in ("run", "verify", "replay") and whole and not PLACEHOLDERS & set(words):
        reached.make_context(name, list(words), parent=group)


@pytest.mark.parametrize(("page", "command"), [c for c in shown() if c[1].startswith("scripts/")])
def test_a_script_is_one_that_there_is(page: str, command: str) -> None:
    script, *words = words_of(command)
    assert (ROOT / script).is_file(), f"{page}: {command}"
    options = {w.split("=")[0] for w in words if w.startswith("--")}
    if not options or not script.endswith(".py"):
        return
    helped = subprocess.run(
        [sys.executable, ROOT / script, "--help"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    ).stdout
    known = set(re.findall(r"--[a-z][\w-]*", helped)) | {"--help"}
    assert options <= known, f"{page}: {command}"


def test_commands_are_found_at_all() -> None:
    found = dict(shown())
    assert "anabranch run headlines.py" in [c for _, c in shown()]
    assert {"docs/cli.md", "docs/verification.md", "docs/service.md"} <= set(found)


def test_the_calls_from_a_program_run() -> None:
    """With a pipeline that ends by itself."""
    lines = text("docs/cli.md").partition("## From a program\n")[2].splitlines()
    block = "\n".join(line[4:] for line in lines if line.startswith("    "))
    pipeline = ab.Pipeline("words")
    numbers = pipeline.source("numbers", ab.generate(lambda i: f"a {i}", count=2000, rate=2000))
    numbers.flat_map("split", str.split).sink("out", ab.discard())
    exec(block, {"ab": ab, "pipeline": pipeline, "print": lambda *_: None})


def test_the_scale_script_says_something() -> None:
    page = text("docs/cli.md").partition("## Scale scripts\n")[2].partition("\n## ")[0]
    block = "\n".join(re.findall(r"^    (.*)$", page, re.MULTILINE))
    assert len(parse_script(block).statements) == 6


# -- links and sizes -------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """Of headings, as the places that show Markdown make them."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    titles = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", title.replace("`", "").lower()) for title in titles)
    return {title.strip().replace(" ", "-") for title in plain}


@pytest.mark.parametrize("page", NAMES)
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", text(page)):
        if re.match(r"[a-z]+://", target):
            continue
        path, _, anchor = target.partition("#")
        there = (ROOT / page).parent / path if path else ROOT / page
        assert there.exists(), f"{page}: {target}"
        if anchor:
            assert anchor in anchors(there), f"{page}: {target}"


def test_every_page_can_be_reached_from_the_readme() -> None:
    told = set(re.findall(r"\]\((docs/[\w-]+\.md|\w+\.md)", text("README.md")))
    assert {n for n in NAMES if n not in told} == {"README.md"}


@pytest.mark.parametrize("page", SIZES)
def test_what_is_read_first_is_short(page: str) -> None:
    assert len(text(page).encode()) <= SIZES[page]


def test_a_source_distribution_has_every_page_that_the_readme_links_to() -> None:
    """The README is the long description of the package."""
    statements = [line.split() for line in text("MANIFEST.in").splitlines() if line[0] != "#"]
    had = {p for verb, what in statements if verb == "include" for p in ROOT.glob(what)}
    had |= {p for verb, what in statements if verb == "graft" for p in (ROOT / what).rglob("*.*")}
    assert set(PAGES) <= had
