"""One of the two processes that `test_hosts.py` starts: python -m tests.experiments.study.pair PORT INDEX FOLDER"""

import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from experiments.study import checkpoint, hosts, store
from experiments.study.driver import Interrupted, run_sweep
from experiments.study.sweep import Waves, compile_program, stack
from tests.experiments.study.test_sweep import COUNTER, PLAN, labels

RUNS, WAVES = 7, Waves(4, 2, 1)


class Stop:
    """Asked to stop after some evaluations."""

    def __init__(self, after):
        self.after = after

    @property
    def asked(self):
        return self.after <= 0

    def hold(self):
        pass

    def let_go(self):
        pass

    def tick(self, tick):
        self.after -= 1


def trained(directory=None, stop=None, resume=False, waves=WAVES):
    """The rows of seven counters, or what was said when it stopped."""
    stop = stop or Stop(10**6)
    runs = stack([np.float32(i + 1) for i in range(RUNS)])
    executables = compile_program(COUNTER, group=waves.group)
    options = {"directory": directory, "study": "one", "resume": resume, "signals": stop, "on_tick": stop.tick}
    try:
        return run_sweep(executables, COUNTER, runs, labels(RUNS), waves, PLAN, **options)
    except Interrupted as where:
        return str(where)


def main(port, index, folder):
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_num_cpu_devices", 1)
    jax.distributed.initialize(f"127.0.0.1:{port}", 2, index, initialization_timeout=100)
    hosts.PIECE = 100  # bytes, so that there is more than one

    assert (hosts.count(), hosts.first()) == (2, index == 0)
    assert hosts.share(range(6)) == range(3 * index, 3 * index + 3)
    assert hosts.agree(False, index == 1, True) == (False, True, True)
    assert hosts.every(b"a" * (3 * index)) == [b"", b"aaa"]
    assert hosts.from_first(b"first" if index == 0 else b"second") == b"first"
    assert hosts.least(2**40 + index) == 2**40
    rng = np.random.default_rng(0)
    whole = {
        "a": rng.random((6, 5, 7)),
        "b": rng.random(6) < 0.5,
        "c": np.arange(6, dtype=np.int8),
        "d": np.ones((6, 0)),
    }
    mine = jax.tree.map(lambda leaf: leaf[3 * index : 3 * index + 3], whole)
    for found, wanted in ((hosts.gather(mine, to_all=True), whole), (hosts.scatter(whole, whole), mine)):
        for name, leaf in wanted.items():
            np.testing.assert_array_equal(found[name], leaf)
            assert found[name].dtype == leaf.dtype
    assert (hosts.gather(mine) is None) == (index == 1)

    store.write_rows(folder / f"whole{index}.parquet", trained(folder / "own"))
    # The second process alone is asked to stop, in the second wave; both do, and the first one writes.
    told = trained(folder / "stopped", Stop(7 if index == 1 else 10**6))
    assert told == ("a checkpoint is written" if index == 0 else "process 0 tells of the checkpoint")
    trained(folder / "left", Stop(7 if index == 1 else 10**6))
    store.write_rows(folder / f"resumed{index}.parquet", trained(folder / "stopped", resume=True))
    store.write_rows(folder / f"single{index}.parquet", trained(folder / "single", resume=True))
    if index == 0:  # the other one would wait for what is never said
        with pytest.raises(checkpoint.CheckpointError, match="stacks runs otherwise than 8 at a time"):
            trained(folder / "left", resume=True, waves=Waves(8, 1, 1))
    print("done")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
