"""The simulator's side of the bridge: files for its own, possibly old, interpreter, started by path.

They run on Python 3.7 and import only the standard library, NumPy, PyTorch and the simulator.
"""
