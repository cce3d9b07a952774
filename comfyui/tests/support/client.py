"""Queue prompts on a running ComfyUI and read what comes back."""

from __future__ import annotations

import json
import struct
import urllib.error
import urllib.request
import uuid
from dataclasses import dataclass, field
from typing import Any

from websocket import WebSocket, create_connection

TEXT = 3
"""Number of the binary event that `send_progress_text` sends."""


class Refused(ValueError):
    """The server did not accept a prompt: what it answered."""


@dataclass
class Result:
    """What one prompt did."""

    prompt_id: str
    status: str = "running"  # then success, error or interrupted
    message: str = ""
    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    texts: dict[str, list[str]] = field(default_factory=dict)
    executed: list[str] = field(default_factory=list)

    def ui(self, node: str, key: str) -> Any:
        """One entry of what an output node shows; an empty list where it shows nothing."""
        return self.outputs.get(node, {}).get(key, [])


class Client:
    """One client of a server: `with Client(url) as client: client.queue(prompt)`."""

    def __init__(self, url: str, timeout: float = 300):
        self.url, self.timeout = url, timeout
        self.id = uuid.uuid4().hex
        self.socket: WebSocket | None = None

    def __enter__(self) -> Client:
        address = self.url.replace("http", "ws", 1)
        self.socket = create_connection(f"{address}/ws?clientId={self.id}", timeout=self.timeout)
        return self

    def __exit__(self, *_: object) -> None:
        if self.socket is not None:
            self.socket.close()
            self.socket = None

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=self.timeout) as reply:
            return json.load(reply)

    def post(self, path: str, body: dict[str, Any]) -> bytes:
        request = urllib.request.Request(self.url + path, json.dumps(body).encode())
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=self.timeout) as reply:
            return reply.read()

    def interrupt(self) -> None:
        self.post("/interrupt", {})

    def queue(self, prompt: dict[str, Any], *, interrupt_at: int | None = None) -> Result:
        """Run a prompt to its end; `interrupt_at`: interrupt once a sampler reports that step."""
        try:
            reply = json.loads(self.post("/prompt", {"prompt": prompt, "client_id": self.id}))
        except urllib.error.HTTPError as error:
            with error:
                raise Refused(error.read().decode(errors="replace")) from None
        result = Result(reply["prompt_id"])
        while not self._receive(result, interrupt_at):
            pass
        history = self.get(f"/history/{result.prompt_id}").get(result.prompt_id, {})
        result.outputs = history.get("outputs", {})
        return result

    def _receive(self, result: Result, interrupt_at: int | None) -> bool:
        """Take one event in; True once the prompt has ended."""
        assert self.socket is not None, "use the client in a with statement"
        message = self.socket.recv()
        if isinstance(message, bytes):
            _take_text(message, result)
            return False
        event = json.loads(message)
        kind, data = event["type"], event.get("data") or {}
        if data.get("prompt_id") != result.prompt_id:
            return False
        if kind == "execution_success":
            result.status = "success"
        elif kind == "execution_error":
            result.status = "error"
            result.message = f"{data.get('exception_type')}: {data.get('exception_message')}"
        elif kind == "execution_interrupted":
            result.status = "interrupted"
        elif kind == "progress" and interrupt_at is not None and data["value"] >= interrupt_at:
            if result.status == "running":
                result.status = "interrupting"
                self.interrupt()
        elif kind == "executing" and data.get("node") is not None:
            result.executed.append(data["node"])
        return kind == "executing" and data.get("node") is None


def _take_text(message: bytes, result: Result) -> None:
    """Keep the text of a binary event: its kind, the length of a node's id, the id, the text."""
    kind, length = struct.unpack(">II", message[:8])
    if kind == TEXT:
        node = message[8 : 8 + length].decode()
        result.texts.setdefault(node, []).append(message[8 + length :].decode())
