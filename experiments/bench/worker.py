"""Another library as a contestant: a process in a virtual environment of its own that waits for its turns."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_SCRIPTS = Path(__file__).resolve().parent / "workers"


class Worker:
    """Reads one JSON request per line, answers with one line; see `experiments/bench/workers`.

    Args:
      script: a file of that folder.
      pins: what to install, in groups, each of which is one call of pip.
    """

    def __init__(self, script: str, *pins: Sequence[str]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="aesjax-bench-"))
        python = self.folder / "venv" / "bin" / "python"
        print(f"bench: making an environment for {script.split('_')[0]}", flush=True)
        try:
            subprocess.run([sys.executable, "-m", "venv", self.folder / "venv"], check=True)
            for group in pins:
                subprocess.run([python, "-m", "pip", "install", "--quiet", *group], check=True)
        except subprocess.CalledProcessError as error:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise ValueError(f"the environment for {script} could not be made: {error}") from None
        self.process = subprocess.Popen(
            [python, _SCRIPTS / script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=self.folder
        )

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request and wait for its answer.

        Raises:
          ValueError: the process has ended.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise ValueError("the worker stopped; its error is above")
        return json.loads(answer)

    def timer(self, case: dict[str, Any], seconds: float) -> Callable[[], float]:
        """Something to be timed, prepared: each call does a fixed amount of work and returns its rate."""
        self.ask({"prepare": case | {"seconds": seconds}})
        return lambda: self.ask({"time": case})["rate"]

    def close(self) -> None:
        """End the process and remove its environment."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait(timeout=30)
        shutil.rmtree(self.folder, ignore_errors=True)
