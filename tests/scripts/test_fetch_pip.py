"""Getting pip where Python came without it, from a package index on this machine."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.runtime.processes import PATIENCE_S
from tests.scripts import SCRIPTS, script


def link(name: str, sha256: str = "0" * 64, attributes: str = "") -> str:
    return f'<a href="../../files/{name}#sha256={sha256}"{attributes}>{name}</a><br/>\n'


def test_the_newest_release_is_taken_by_number_and_not_by_letter() -> None:
    names = ["pip-9.0.3", "pip-26.0.1", "pip-26.3"]
    page = "".join(link(f"{name}-py3-none-any.whl") for name in names)
    assert script("fetch_pip").newest_wheel(page)[1] == "pip-26.3-py3-none-any.whl"


def test_withdrawn_and_unfinished_releases_are_not_taken() -> None:
    page = link("pip-24.0-py3-none-any.whl", attributes=' data-requires-python="&gt;=3.7"')
    page += link("pip-25.0-py3-none-any.whl", attributes=' data-yanked="broken"')
    page += link("pip-26.0b1-py3-none-any.whl") + link("pip-26.0.tar.gz")
    assert script("fetch_pip").newest_wheel(page)[1] == "pip-24.0-py3-none-any.whl"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    handler = partial(Quiet, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/simple"
        server.shutdown()
        thread.join(timeout=PATIENCE_S)


def publish(root: Path, *, sha256: str | None = None) -> None:
    """A wheel of a pip that prints its arguments, and the page that links to it."""
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("pip/__main__.py", "import sys; print(*sys.argv[1:3])")
    (root / "files").mkdir()
    (root / "files" / "pip-26.3-py3-none-any.whl").write_bytes(wheel.getvalue())
    (root / "simple" / "pip").mkdir(parents=True)
    right = hashlib.sha256(wheel.getvalue()).hexdigest()
    page = link("pip-26.3-py3-none-any.whl", sha256 or right)
    (root / "simple" / "pip" / "index.html").write_text(page)


def fetch(index: str) -> subprocess.CompletedProcess[str]:
    environ = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    return subprocess.run(
        [sys.executable, str(SCRIPTS / "fetch_pip.py")],
        env=environ | {"PIP_INDEX_URL": index},
        capture_output=True,
        text=True,
    )


def test_the_wheel_installs_itself(tmp_path: Path, index: str) -> None:
    publish(tmp_path)
    done = fetch(index)
    assert (done.returncode, done.stdout) == (0, "install -qq\n"), done.stderr


def test_a_damaged_wheel_is_not_run(tmp_path: Path, index: str) -> None:
    publish(tmp_path, sha256="f" * 64)
    done = fetch(index)
    assert (done.returncode, done.stdout) == (1, "")
    assert "is damaged" in done.stderr


def test_an_index_that_cannot_be_reached_is_a_clear_error() -> None:
    done = fetch("http://127.0.0.1:9/simple")
    assert done.returncode == 1
    assert done.stderr.startswith("fetching pip failed: ")
    assert "Traceback" not in done.stderr
