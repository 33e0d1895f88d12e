"""The numbers that code and tests cite are specified in docs/, and what is specified is cited.

A number is a letter, or a prefix and a letter, with digits: R3', PF3b, PL-G5, MM13. Cited are
those in comments, docstrings and other strings; a name such as `A0` in code is none.
"""

from __future__ import annotations

import re
import subprocess
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from anabranch.runtime.broken_protocols.variants import VARIANTS
from anabranch.runtime.explorer.scopes import (
    COPIES_DEEP,
    COPIES_SMALL,
    CUTS_DEEP,
    CUTS_SMALL,
    DEEP,
    DEEPEST,
    SMALL,
)
from anabranch.runtime.world.lapse_list import LAPSES

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = ("protocol.md", "properties.md", "papers.md")

PREFIX = r"(?:PL-[A-Z]|MM-[A-Z]|HI-[A-Z]|EL-[A-Z]|PL|MM|HI|EL|PE|PF|[A-Z])"
NUMBER = re.compile(rf"(?<![\w./'-])({PREFIX})(\d{{1,2}})(['a-d]?)(?![\w.]\d|,\d|\w)")
RANGE = re.compile(rf"({PREFIX})(\d+) to (?:{PREFIX})?(\d+)")
ROW = re.compile(rf"^\| ({PREFIX}\d+['a-d]?) \|", re.MULTILINE)

NO_CITATIONS = {
    "A": "instances of operator A in tests, such as A0",
    "C0": "an instance of operator C in tests",
    "O": "instances and operators of scopes, such as O1",
    "T": "the measures T1 to T3 of degradation, which MM11 defines",
}
BY_THE_PAGE = {f"C{n}": "papers.md" for n in range(1, 8)}
"""Criteria that stand in one sentence, not in rows."""


@cache
def python_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py", "scripts/*"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    found = [ROOT / name for name in listed]
    return [f for f in found if f.is_file() and f.suffix == ".py" and f != Path(__file__)]


def prose_of(file: Path) -> Iterator[tuple[int, str]]:
    """Comments and strings, with the number of their first line."""
    middle = getattr(tokenize, "FSTRING_MIDDLE", None)
    with file.open("rb") as text:
        for token in tokenize.tokenize(text.readline):
            if token.type in (tokenize.COMMENT, tokenize.STRING, middle):
                yield token.start[0], token.string


def cited_in(text: str) -> Iterator[str]:
    """Ranges count as all that lies between their ends."""
    for prefix, first, last in RANGE.findall(text):
        yield from (f"{prefix}{n}" for n in range(int(first), int(last) + 1))
    for found in NUMBER.finditer(text):
        yield "".join(found.groups())


@cache
def cited() -> dict[str, str]:
    """Every number that code or a test cites, with one place."""
    places: dict[str, str] = {}
    for file in python_files():
        for line, text in prose_of(file):
            for number in cited_in(text):
                if number not in NO_CITATIONS and number[0] not in NO_CITATIONS:
                    places.setdefault(number, f"{file.relative_to(ROOT)}:{line}")
    return places


def specified() -> dict[str, str]:
    """Every number with a row of its own, and its page."""
    pages: dict[str, str] = dict(BY_THE_PAGE)
    for page in PAGES:
        for number in ROW.findall((DOCS / page).read_text(encoding="utf-8")):
            assert number not in pages, (
                f"{number} is specified twice, in {pages[number]} and {page}"
            )
            pages[number] = page
    return pages


def without_twin(number: str, numbers: dict[str, str]) -> bool:
    """`PF3b` is cited where `PF3` is meant too, and a quote may end a string: `R14'`."""
    return number not in numbers and number.rstrip("'") not in numbers


def test_every_number_that_is_cited_is_specified() -> None:
    known = specified()
    strange = {n: place for n, place in cited().items() if without_twin(n, known)}
    assert strange == {}, "cited, but in none of docs/protocol.md, properties.md and papers.md"


def test_every_number_that_is_specified_is_cited() -> None:
    places = cited()
    unused = {n: page for n, page in specified().items() if n not in places}
    assert unused == {}, "specified, but neither code nor a test cites it"


def test_numbers_in_documents_are_specified_too() -> None:
    known = specified()
    for page in sorted([*DOCS.glob("*.md"), *ROOT.glob("*.md")]):
        if page.name == "CHANGELOG.md":
            continue  # it tells what numbers were before
        text = re.sub(r"https?://\S+", "", page.read_text(encoding="utf-8"))
        strange = {
            n for n in cited_in(text)
            if n not in NO_CITATIONS and n[0] not in NO_CITATIONS and without_twin(n, known)
        }  # fmt: skip
        assert strange - in_the_whole_list(page) == set(), page.name


def in_the_whole_list(page: Path) -> set[str]:
    """The page of properties says how many there were, and has those that are cited."""
    whole = {f"P{n}" for n in range(1, 43)}
    return whole if page.name in ("properties.md", "protocol.md") else set()


def test_scopes_and_consequences_of_a_rule_are_those_of_its_broken_variants() -> None:
    scopes: dict[str, set[str]] = defaultdict(set)
    findings: dict[str, set[str]] = defaultdict(set)
    for variant in VARIANTS:
        if not variant.rule.startswith("duty"):
            scopes[variant.rule].add(str(variant.scope))
            findings[variant.rule].update(variant.finding)
    page = (DOCS / "protocol.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([RDEMZV]\d+'?) \|.*\| ([^|]*); ([^|`]*) \|$", page, re.MULTILINE)
    assert {rule: set(re.findall(r"`(\d[^`]*)`", checks)) for rule, checks, _ in rows} == scopes
    told = {
        rule: set(codes.replace("illegal input", "ILLEGAL").split(", ")) for rule, _, codes in rows
    }
    assert told == findings


def test_numbers_of_scopes_and_variants_are_those_of_the_code() -> None:
    protocol, verification = (
        (DOCS / page).read_text() for page in ("protocol.md", "verification.md")
    )
    small = len(SMALL) + len(CUTS_SMALL) + len(COPIES_SMALL)
    deep = len(DEEP) + len(CUTS_DEEP) + len(COPIES_DEEP)
    deadly = [
        sum(scope.crashes > 0 for scope in scopes.values()) + sum(cut.deaths > 0 for cut in cuts)
        for scopes, cuts in ((SMALL, CUTS_SMALL), (DEEP, CUTS_DEEP))
    ]
    of_deaths = sum(v.rule[0] == "Z" or v.rule == "duty 12" for v in VARIANTS)
    for told in (
        f"goes through {small} small scopes, five of them about connections and "
        f"{len(COPIES_SMALL)} about copies of journals",
        f"`--scope deep` through {deep} larger ones",
        f"`--scope deepest` through {len(DEEPEST)} that are larger still",
        f"{deadly[0]} of the small scopes and {deadly[1]} of the deep ones have deaths",
    ):
        assert told in protocol
    for told in (
        f"goes through {small} small scopes",
        f"`--scope deep` goes through {deep} larger ones",
        f"{deadly[0]} of the {small} small scopes and {deadly[1]} of the {deep} deep ones have",
        f"{of_deaths} of its variants break Z1 to Z5",
        f"puts one of {len(LAPSES)} faults at a time",
    ):
        assert told in verification


def test_every_file_and_test_that_a_document_names_is_there() -> None:
    stems = {file.stem for file in python_files()}
    for page in [*DOCS.glob("*.md"), ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]:
        for name in re.findall(r"`([\w/*]+(?:\.py)?)`", page.read_text(encoding="utf-8")):
            if "/" in name and name.endswith(".py"):
                there = [f for below in ("", "*/", "*/*/") for f in ROOT.glob(below + name)]
                assert there, f"{page.name} names {name}"
            elif re.fullmatch(r"test_\w+", name):
                a_test = any(f"def {name}(" in f.read_text(encoding="utf-8") for f in test_files())
                assert name in stems or a_test, f"{page.name} names {name}"


def test_files() -> list[Path]:
    return [f for f in python_files() if f.is_relative_to(ROOT / "tests")]


test_files.__test__ = False  # type: ignore[attr-defined]


def test_every_section_of_the_specification_that_is_cited_is_there() -> None:
    page = (DOCS / "protocol.md").read_text(encoding="utf-8")
    headings = {h.rstrip(".") for h in re.findall(r"^##+ ([\d.]+) ", page, re.MULTILINE)}
    cited_sections: dict[str, str] = {}
    for file in python_files():
        for line, text in prose_of(file):
            for told in re.findall(r"`(?:docs/)?protocol\.md`((?: [\d.]+(?:,| and)?)*)", text):
                for section in re.findall(r"\d+(?:\.\d+)?", told):
                    cited_sections[section] = f"{file.relative_to(ROOT)}:{line}"
    assert cited_sections
    assert {s: at for s, at in cited_sections.items() if s not in headings} == {}


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("R3': all", {"R3'"}),
        ("(PF3b; erratum PL-G5)", {"PF3b", "PL-G5"}),
        ("E1 to E3", {"E1", "E2", "E3"}),
        ("O1.2 and M0,0 L8,4 and `A0`", {"A0"}),
        ("test_r3, x.R3, UTF-16", set()),
    ],
)
def test_a_citation_is_told_from_other_words(text: str, numbers: set[str]) -> None:
    assert set(cited_in(text)) == numbers


def test_words_that_the_glossary_gives_to_the_code_are_in_the_code() -> None:
    page = (DOCS / "glossary.md").read_text(encoding="utf-8")
    columns = re.findall(r"^\| [^|]+ \| ([^|]+) \| [^|]+ \|$", page, re.MULTILINE)
    words = {word for column in columns for word in re.findall(r"`([^`]+)`", column)}
    tests = ROOT / "tests"
    code = "\n".join(
        f.read_text(encoding="utf-8") for f in python_files() if not f.is_relative_to(tests)
    )
    names = {word: word.split()[-1].strip("-") for word in words}
    strange = {w for w, name in names.items() if re.search(rf"\b{re.escape(name)}\b", code) is None}
    assert words
    assert strange == set()


def test_the_glossary_has_each_word_once() -> None:
    page = (DOCS / "glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]+?) \|[^|]*\| [^|]+ \|$", page, re.MULTILINE)
    words = [w for row in rows if row != "word" for w in row.split(", ")]
    assert sorted(words) == sorted(set(words))
