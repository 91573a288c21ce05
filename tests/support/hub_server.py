"""
A small HTTP server on this machine that answers huggingface_hub's requests as the Hub does: create a repository, check a card,
commit, and download. Files come within the commit (`uploadMode: regular`); the Hub takes large ones through its own storage.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml


class HubServer(ThreadingHTTPServer):
    """:param token: What clients have to send to change something"""

    daemon_threads = True

    def __init__(self, token: str = "hf_test"):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.token = token
        #: The requests so far, such as "POST /api/repos/create".
        self.requests: list[str] = []
        #: By the repository's id: the commits, oldest first, each with all files.
        self.commits: dict[str, list[dict[str, bytes]]] = {}
        self.private: dict[str, bool] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def files(self, repo_id: str) -> dict[str, bytes]:
        """:return: The files of the newest commit"""
        return self.commits[repo_id][-1]


def oid(repo_id: str, number: int) -> str:
    """:return: The name of a repository's n-th commit"""
    return hashlib.sha1(f"{repo_id}/{number}".encode()).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    server: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """The standard one writes to stderr."""

    def _answer(self, status: int, content: Any = None, data: bytes = b"", **headers: str) -> None:
        data = data if content is None else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, {"error": code}, X_Error_Code=code)

    def do_POST(self) -> None:
        self.server.requests.append(f"POST {self.path}")
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/api/validate-yaml":
            self._check_card(json.loads(body)["content"])
        elif self.headers.get("Authorization") != f"Bearer {self.server.token}":
            self._refuse(401, "Unauthorized")
        elif self.path == "/api/repos/create":
            self._create(json.loads(body))
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/(preupload|commit)/main", self.path):
            repo_id, action = match.groups()
            if repo_id not in self.server.commits:
                self._refuse(404, "RepoNotFound")
            elif action == "preupload":
                files = [
                    {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                    for file in json.loads(body)["files"]
                ]
                self._answer(200, {"files": files})
            else:
                self._commit(repo_id, [json.loads(line) for line in body.splitlines()])
        else:
            self._answer(404)

    def _check_card(self, card: str) -> None:
        metadata = yaml.safe_load(card.split("---\n")[1])
        named = [set(entry) >= {"name", "results"} for entry in metadata.get("model-index", [])]
        errors = [] if all(named) else [{"message": '"model-index" needs a name and results'}]
        self._answer(400 if errors else 200, {"errors": errors, "warnings": []})

    def _create(self, wanted: dict[str, Any]) -> None:
        repo_id = f"{wanted['organization']}/{wanted['name']}"
        exists = repo_id in self.server.commits
        if not exists:
            self.server.commits[repo_id] = [{}]
            self.server.private[repo_id] = wanted.get("visibility") == "private" or wanted.get("private") is True
        self._answer(409 if exists else 200, {"url": f"{self.server.url}/{repo_id}"})

    def _commit(self, repo_id: str, lines: list[dict[str, Any]]) -> None:
        files = dict(self.server.files(repo_id))
        for line in lines:
            if line["key"] == "file":
                assert line["value"]["encoding"] == "base64"
                files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            else:
                assert line["key"] == "header"
        self.server.commits[repo_id].append(files)
        name = oid(repo_id, len(self.server.commits[repo_id]) - 1)
        self._answer(200, {"commitUrl": f"{self.server.url}/{repo_id}/commit/{name}", "commitOid": name, "success": True})

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.server.requests.append(f"{self.command} {self.path}")
        match = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self.path)
        if match is None:
            self._answer(404)
            return
        repo_id, revision, name = match.groups()
        commits = self.server.commits.get(repo_id, [])
        if not commits:
            self._refuse(404, "RepoNotFound")
            return
        known = {"main": len(commits) - 1, **{oid(repo_id, number): number for number in range(len(commits))}}
        if revision not in known:
            self._refuse(404, "RevisionNotFound")
            return
        number = known[revision]
        commit = oid(repo_id, number)
        if name not in commits[number]:
            self._answer(404, {"error": name}, X_Error_Code="EntryNotFound", X_Repo_Commit=commit)
            return
        data = commits[number][name]
        self._answer(200, data=data, X_Repo_Commit=commit, ETag=f'"{hashlib.sha1(data).hexdigest()}"')


@contextmanager
def running_hub(token: str = "hf_test") -> Iterator[HubServer]:
    """:return: A server that runs within the block"""
    with HubServer(token) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def as_default_hub(monkeypatch: pytest.MonkeyPatch, cache: Path) -> Iterator[HubServer]:
    """Let code that names no server use a stand-in, with a valid token and an empty cache."""
    with running_hub() as server:
        # What HF_ENDPOINT sets when huggingface_hub is imported.
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", server.url)
        monkeypatch.setattr(
            "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", server.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
        monkeypatch.setenv("HF_TOKEN", server.token)
        yield server
