"""The worker's side of `experiments/bench/worker.py`: one JSON request per line, answered with one line."""

import json
import sys
from collections.abc import Callable


def serve(make_timer: Callable[..., Callable[[], float]]) -> None:
    """Answer requests until the input ends.

    Args:
      make_timer: (seconds, and what identifies a case) -> a function that does a fixed amount of work and returns its
        rate.
    """
    timers = {}
    for line in sys.stdin:
        request = json.loads(line)
        if "prepare" in request:
            case = dict(request["prepare"])
            seconds = case.pop("seconds")
            timers[json.dumps(case, sort_keys=True)] = make_timer(**case, seconds=seconds)
            answer = {"ready": True}
        else:
            answer = {"rate": timers[json.dumps(request["time"], sort_keys=True)]()}
        print(json.dumps(answer), flush=True)
