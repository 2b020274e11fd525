"""The driver's side of a worker: a process that answers one JSON line with one."""

import contextlib
import json
import os
import select
import subprocess
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


class WorkerError(Exception):
    """What a worker answered instead of a result, or how it ended."""


class Worker:
    """A worker process. Ends with `stop`, or by itself when this process ends."""

    def __init__(self, name: str, python: Path, patience: float) -> None:
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed by `stop`)
        self._patience = patience
        self._process = subprocess.Popen(
            [str(python), "-m", f"benchmarks.peers.worker_{name}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=ROOT,
            env={"JAX_PLATFORMS": "cpu", **os.environ},
            start_new_session=True,  # Ctrl-C reaches the driver alone, which then ends the workers
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request and wait for its answer."""
        process = self._process
        assert process.stdin and process.stdout
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            raise WorkerError(self._ending()) from None
        if not select.select([process.stdout], [], [], self._patience)[0]:
            self.stop()
            raise WorkerError(f"no answer to {request['do']!r} in {self._patience:g} s")
        line = process.stdout.readline()
        if not line:
            raise WorkerError(self._ending())
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(answer["error"])
        return answer

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdin and self._process.stdout
        for stream in (self._process.stdin, self._process.stdout, self._log):
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def _ending(self) -> str:
        """How the process ended: the last line that it wrote to stderr."""
        code = self._process.wait()
        self._log.seek(0)
        lines = self._log.read().split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "")
        return f"the worker ended with code {code}: {last.strip()}"
