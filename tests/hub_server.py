"""A stand-in for the Hugging Face Hub on this machine: the few answers that huggingface_hub asks for, files in memory.

Regular files come inside the commit, weights through LFS's batch call and a PUT, as without Xet. Who writes needs the
token.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_stand_in"


@dataclass
class Repository:
    """Its commits, oldest first: files by name. Tags name a commit."""

    commits: list[dict[str, bytes]] = field(default_factory=lambda: [{}])
    tags: dict[str, int] = field(default_factory=dict)
    private: bool = False

    def number(self, revision: str) -> int:
        if revision == "main":
            return len(self.commits) - 1
        ids = {commit_id(number): number for number in range(len(self.commits))}
        return {**ids, **self.tags}[revision]


def commit_id(number: int) -> str:
    return hashlib.sha1(str(number).encode()).hexdigest()


class Hub(ThreadingHTTPServer):
    """What was pushed."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.repositories: dict[str, Repository] = {}
        self.blobs: dict[str, bytes] = {}  # by their SHA-256, until a commit names them
        self.status = 0  # answers everything with this error

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Answers(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if not self._welcome():
            return
        if found := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?", self.path):
            self._describe(found[1], found[2] or "main")
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", self.path):
            self._send_file(*found.groups())
        else:
            self._refuse(404, "EntryNotFound")

    def do_POST(self) -> None:
        body = self._body()
        if not self._welcome():
            return
        if self.path == "/api/validate-yaml":
            self._reply({"errors": [], "warnings": []})
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._refuse(401)
        elif self.path == "/api/repos/create":
            self._create(json.loads(body))
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/preupload/main", self.path):
            files = [
                {"path": file["path"], "uploadMode": "lfs" if file["path"].endswith("tensors") else "regular"}
                | {"shouldIgnore": False, "oid": None}
                for file in json.loads(body)["files"]
            ]
            self._reply({"files": files})
        elif found := re.fullmatch(r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch", self.path):
            self._ask_for_blobs(json.loads(body))
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/main", self.path):
            self._commit(found[1], [json.loads(line) for line in body.splitlines()])
        else:
            self._refuse(404)

    def do_PUT(self) -> None:
        body = self._chunks() if "chunked" in self.headers.get("Transfer-Encoding", "") else self._body()
        self.server.blobs[hashlib.sha256(body).hexdigest()] = body
        self._reply({})

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _chunks(self) -> bytes:
        """A body whose length nobody knew: each chunk after its own length, and an empty one last."""
        parts = []
        while length := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(length))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _welcome(self) -> bool:
        if self.server.status:
            self._refuse(self.server.status)
        return not self.server.status

    def _create(self, wanted: dict[str, Any]) -> None:
        name = f"{wanted['organization']}/{wanted['name']}"
        self.server.repositories.setdefault(name, Repository(private=wanted.get("visibility") == "private"))
        self._reply({"url": f"{self.server.url}/{name}"})

    def _describe(self, name: str, revision: str) -> None:
        if name not in self.server.repositories:
            self._refuse(404, "RepoNotFound")
            return
        try:
            number = self.server.repositories[name].number(revision)
        except KeyError:
            self._refuse(404, "RevisionNotFound")
            return
        facts = {"id": name, "modelId": name, "sha": commit_id(number), "siblings": [], "tags": []}
        self._reply(facts | {"private": self.server.repositories[name].private})

    def _send_file(self, name: str, revision: str, file: str) -> None:
        repository = self.server.repositories[name]
        number = repository.number(revision)
        if file not in repository.commits[number]:
            self._refuse(404, "EntryNotFound")
            return
        content = repository.commits[number][file]
        self.send_response(200)
        self.send_header("X-Repo-Commit", commit_id(number))
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def _ask_for_blobs(self, wanted: dict[str, Any]) -> None:
        objects = [
            {**blob, "actions": {"upload": {"href": f"{self.server.url}/blob/{blob['oid']}", "header": {}}}}
            for blob in wanted["objects"]
        ]
        self._reply({"transfer": "basic", "objects": objects}, kind="application/vnd.git-lfs+json")

    def _commit(self, name: str, lines: list[dict[str, Any]]) -> None:
        repository = self.server.repositories[name]
        files = dict(repository.commits[-1])
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.server.blobs[value["oid"]]
        repository.commits.append(files)
        number = len(repository.commits) - 1
        self._reply({"commitUrl": f"{self.server.url}/{name}/commit/{number}", "commitOid": commit_id(number)})

    def _reply(self, content: dict[str, Any], kind: str = "application/json") -> None:
        data = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _refuse(self, status: int, code: str = "") -> None:
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()


@contextmanager
def stand_in() -> Iterator[Hub]:
    """The server, on a port of its own."""
    with Hub() as hub:
        thread = threading.Thread(target=hub.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield hub
        hub.shutdown()
        thread.join()
