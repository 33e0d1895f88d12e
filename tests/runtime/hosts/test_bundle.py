"""Bundles of code: named by their content, and never more than files below one folder."""

from __future__ import annotations

import msgspec
import pytest

from anabranch.runtime.hosts import bundle as bundles
from anabranch.runtime.hosts.bundle import (
    Bundle,
    BundleError,
    BundleFile,
    encoded,
    lacks,
    needed,
    opened,
    syntax_error,
    version_of,
)


def bundle_of(files: dict[str, bytes], module: str = "a.py") -> Bundle:
    return Bundle("a", module, "", [], [BundleFile(path, data) for path, data in files.items()])


def test_the_version_is_that_of_the_content_and_not_of_the_order() -> None:
    one = encoded(bundle_of({"a.py": b"x = 1", "b.py": b""}))
    other = encoded(bundle_of({"b.py": b"", "a.py": b"x = 1"}))
    assert one == other
    assert version_of(one) != version_of(encoded(bundle_of({"a.py": b"x = 2", "b.py": b""})))
    assert opened(one, version_of(one)).files[0] == BundleFile("a.py", b"x = 1")


def test_a_bundle_that_was_changed_on_its_way_is_refused() -> None:
    data = bytearray(encoded(bundle_of({"a.py": b"x = 1"})))
    version = version_of(bytes(data))
    data[-1] ^= 1
    with pytest.raises(BundleError, match="its content has another SHA-256"):
        opened(bytes(data), version)
    with pytest.raises(BundleError, match="this is no bundle"):
        opened(b"\x01", version_of(b"\x01"))


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/etc/passwd", "expected a path below the folder of the module"),
        ("../b.py", "expected a path below the folder of the module"),
        ("b/../../c", "expected a path below the folder of the module"),
        ("", "expected a path below the folder of the module"),
        ("b\0.py", "expected a path below the folder of the module"),
        ("./a.py", "is in the bundle twice"),
        ("a.py/b", "lies in what is a file itself"),
    ],
)
def test_no_file_of_a_bundle_lies_elsewhere(path: str, told: str) -> None:
    """Also if it was not made by `encoded`, which refuses it."""
    bundle = bundle_of({"a.py": b"", path: b"x"})
    data = msgspec.msgpack.encode(bundle)
    with pytest.raises(BundleError, match=told):
        opened(data, version_of(data))
    with pytest.raises(BundleError, match=told):
        encoded(bundle)


def test_what_is_too_large_or_too_much_is_refused_with_the_largest_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bundles, "BUNDLE_BYTES_MAX", 1_000)
    monkeypatch.setattr(bundles, "FILES_MAX", 3)
    with pytest.raises(BundleError, match=r"the largest file is big.bin with 2,000"):
        encoded(bundle_of({"a.py": b"", "big.bin": bytes(2_000)}))
    with pytest.raises(BundleError, match="4 files, at most 3 may travel"):
        encoded(bundle_of({"a.py": b"", "1": b"", "2": b"", "3": b""}))


def test_the_module_is_one_of_the_files() -> None:
    with pytest.raises(BundleError, match=r"has no Python file 'b.py'"):
        encoded(bundle_of({"a.py": b""}, "b.py"))


def test_what_the_code_imports_is_known_before_it_runs() -> None:
    code = b"""
import os, anabranch as ab
import words.plain
from scipy import stats
from . import near
try:
    import uvloop
except ImportError:
    pass
def f():
    import cv2
"""
    bundle = bundle_of({"a.py": code, "words/plain.py": b"import os.path\nimport scipy.x"})
    assert needed(bundle) == {"anabranch": "a.py:2", "scipy": "a.py:4", "cv2": "a.py:11"}
    typed = b"if TYPE_CHECKING:\n    import numpy\nelse:\n    import cv2\nimport scipy\n"
    assert needed(bundle_of({"a.py": typed})) == {"cv2": "a.py:4", "scipy": "a.py:5"}
    deep = b"x = " + b".".join([b"a"] * 1_500) + b"\nimport cv2\n"
    assert needed(bundle_of({"a.py": deep})) == {"cv2": "a.py:2"}
    told = lacks([("cv2", "a.py:11")], "press")
    assert told.startswith("host press does not have what the pipeline imports: 'cv2' (a.py:11)")


def test_a_file_that_is_no_python_is_told_with_its_line() -> None:
    assert syntax_error("a.py", b"x = 1") is None
    assert syntax_error("a.py", b"x = 1\ndef f(:\n") == "a.py:2: invalid syntax"
    assert syntax_error("a.py", b"\xff\xfe") is not None
    assert syntax_error("a.py", b"x = " + b"-" * 200_000 + b"1") is not None
    assert syntax_error("a.py", b"x = " + b".".join([b"a"] * 100_000)) is not None


def test_what_is_no_utf_8_is_told() -> None:
    with pytest.raises(BundleError, match="expected a text in UTF-8"):
        encoded(bundle_of({"a.py": b"", "\udcff.txt": b""}))
