"""Installs pip into an environment that was made without it, from PyPI or PIP_INDEX_URL.

Only for Pythons without `ensurepip`: Debian's, unless python3-venv is installed. A pip wheel can
be run as it is, so it installs itself.
"""

from __future__ import annotations

import hashlib
import os
import re
import ssl
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urldefrag, urljoin
from urllib.request import urlopen

INDEX = os.environ.get("PIP_INDEX_URL") or "https://pypi.org/simple"
TIMEOUT_S = 60

_WHEEL = re.compile(r'href="([^"]*/(pip-(\d+(?:\.\d+)*)-py3-none-any\.whl)#sha256=[0-9a-f]{64})"')


def newest_wheel(page: str) -> tuple[str, str]:
    """Link with hash, and file name, of the newest release on a page of a package index."""
    links = (_WHEEL.search(a) for a in re.findall(r"<a [^>]*>", page) if "data-yanked" not in a)
    wheels = [(tuple(map(int, m[3].split("."))), m[1], m[2]) for m in links if m]
    if not wheels:
        raise ValueError(f"no wheel of pip at {INDEX}")
    _, link, name = max(wheels)
    return link, name


def get(url: str) -> bytes:
    context = ssl.create_default_context(cafile=os.environ.get("PIP_CERT") or None)
    with urlopen(url, timeout=TIMEOUT_S, context=context) as answer:
        return bytes(answer.read())


def main() -> int:
    page_url = INDEX.rstrip("/") + "/pip/"
    try:
        link, name = newest_wheel(get(page_url).decode())
        url, fragment = urldefrag(urljoin(page_url, link))
        wheel = get(url)
        if hashlib.sha256(wheel).hexdigest() != fragment.removeprefix("sha256="):
            raise ValueError(f"{url} is damaged: its SHA-256 is not the one that the index gives")
    except (URLError, OSError, ValueError) as error:
        print(f"fetching pip failed: {error}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(wheel)
        command = [sys.executable, f"{path}/pip", "install", "-qq", "--no-index", str(path)]
        return subprocess.run(command).returncode


if __name__ == "__main__":
    sys.exit(main())
