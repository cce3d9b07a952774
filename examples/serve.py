"""A picture server of diffusers and threads: one set of weights, and a quality for every request.

    python examples/serve.py                  # geoshrink-bench's demo model, or a diffusers FOLDER
    curl 127.0.0.1:8000 -d '{"labels": "Kiwi 1"}' -H 'x-geoshrink: budget=10' -D - -o kiwi.png

A request asks by the header x-geoshrink, or by the field "geoshrink", for speedup=3, budget=10,
"target_db=30, most=25" or exact. The answer's header says what was done, or why it was not.
"""

import argparse
import copy
import io
import json
from contextlib import nullcontext, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from select import select
from socket import MSG_PEEK
from threading import BoundedSemaphore
from typing import Any

import torch

import geoshrink
from geoshrink.compare.pipeline import Settings, opened
from geoshrink.hosts.serving import KEY, Policy, told

FIELDS = {"seed": int, "num_inference_steps": int, "guidance_scale": (int, float), KEY: object}
FIELDS |= {"prompt": str, "negative_prompt": str, "labels": str, "height": int, "width": int}


def twin(pipe: Any) -> Any:
    """A pipeline for one run, with the same weights. No other component may remember a run."""
    mine = copy.copy(pipe)  # the guidance and the length of a run are attributes of the pipeline
    for name, part in pipe.components.items():
        if hasattr(part, "set_timesteps"):  # a scheduler counts the steps of a run
            setattr(mine, name, copy.deepcopy(part))
    return mine


def make(pipe: Any, policy: Policy, asked: Any, call: dict[str, Any]) -> tuple[Any, dict]:
    """(the picture, what the answer says of its run)."""
    (options, why), mine = policy.options(asked), twin(pipe)
    try:
        handle = None if options is None else geoshrink.accelerate(mine, **options)
    except (TypeError, ValueError) as error:  # this pipeline cannot do it
        handle, why = None, f"{KEY}: {error}"
    with handle or nullcontext():
        return mine(**call).images[0], told(handle and handle.report, why)


class Handler(BaseHTTPRequestHandler):
    pipe, policy, turns = None, Policy(), BoundedSemaphore(2)  # of all requests

    def do_POST(self) -> None:
        try:
            body = self.rfile.read(min(1 << 16, int(self.headers["content-length"])))
            given = {KEY: self.headers.get(f"x-{KEY}"), **json.loads(body)}
            if wrong := [k for k in given if not isinstance(given[k], FIELDS.get(k, ()))]:
                raise ValueError(f"the fields are {', '.join(FIELDS)}; wrong is {wrong[0]!r}")
        except (RecursionError, TypeError, ValueError) as error:
            return self.answer(400, f"expected a JSON object: {error}\n".encode())
        try:
            asked, generator = given.pop(KEY), torch.Generator().manual_seed(given.pop("seed", 0))
            call = given | {"generator": generator, "callback_on_step_end": self.still_there}
            with self.turns:  # others wait
                self.still_there()
                image, done = make(self.pipe, self.policy, asked, call)
            image.save(png := io.BytesIO(), "PNG")
            self.answer(200, png.getvalue(), done)
        except Exception as error:
            self.answer(500, f"the run failed: {type(error).__name__}: {error}\n".encode())

    def still_there(self, *_: Any) -> dict:
        """Called between steps: ends the run of a client that has closed the connection."""
        if select([self.connection], [], [], 0)[0] and not self.connection.recv(1, MSG_PEEK):
            raise ConnectionAbortedError("the client has gone")
        return {}

    def answer(self, code: int, body: bytes, done: Any = None) -> None:
        with suppress(ConnectionError):
            self.send_response(code)
            self.send_header("content-type", "image/png" if done else "text/plain")
            self.send_header(f"x-{KEY}", json.dumps(done))
            self.end_headers()
            self.wfile.write(body)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("model", nargs="?", default="geoshrink_bench.zoo.pipelines:pipeline")
    parser.add_argument("--geoshrink", help="for requests that ask for nothing; or GEOSHRINK=…")
    parser.add_argument("--runs", type=int, default=2, help="at once; others wait")
    parser.add_argument("--port", type=int, default=8000)
    args = parser.parse_args()
    Handler.policy = Policy(args.geoshrink) if args.geoshrink else Policy.from_environment()
    Handler.pipe, Handler.turns = opened(Settings(args.model))[0], BoundedSemaphore(args.runs)
    with ThreadingHTTPServer(("127.0.0.1", args.port), Handler) as server:
        print(f"http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()
