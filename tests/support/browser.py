"""Pages in a real browser, where one is installed: a server on this machine, and headless Chromium that opens its pages."""

import functools
import http.server
import json
import queue
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

CHECK = Path(__file__).with_name("pages_check.html")
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = "--disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync"


def chromium() -> str:
    """:return: The path of Chromium; a test is skipped where there is no such program"""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed")


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the site, the check and its task, and takes the results."""

    def __init__(self, *args: Any, task: dict[str, Any], results: queue.Queue[Any], **kwargs: Any) -> None:
        self.task, self.results = task, results
        super().__init__(*args, **kwargs)

    def do_GET(self) -> None:
        own = {"/check.html": CHECK.read_bytes(), "/task.json": json.dumps(self.task).encode()}.get(self.path)
        if own is None:
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8" if self.path.endswith("html") else "application/json")
        self.end_headers()
        self.wfile.write(own)
        return None

    def do_POST(self) -> None:
        self.results.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


def look_at(
    site: Path, pages: list[str], widths: tuple[int, ...], profile: Path, timeout: float = 240
) -> list[dict[str, Any]]:
    """
    :param site: The folder of the pages
    :param pages: Their paths in it
    :param widths: Of the window, in pixels
    :param profile: An empty folder for the browser
    :return: ``page``, ``width``, ``problems``, ``tables`` and ``formulas`` (how many), for each width and page
    """
    results: queue.Queue[Any] = queue.Queue()
    handler = functools.partial(_Handler, directory=str(site), task={"pages": pages, "widths": widths}, results=results)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = [
            chromium(),
            "--headless",
            "--no-sandbox",
            *QUIET.split(),
            "--window-size=1400,1000",
            "--remote-debugging-port=0",
        ]
        address = f"http://127.0.0.1:{server.server_port}/check.html"
        process = subprocess.Popen(
            [*command, f"--user-data-dir={profile}", address], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            found = results.get(timeout=timeout)
        finally:
            process.terminate()
            process.wait(timeout=30)
            server.shutdown()
    assert isinstance(found, list), found
    return found
