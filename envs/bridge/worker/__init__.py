"""The simulator's side of the bridge: two files for its own, possibly old, interpreter, started by path.

They are written in the grammar of Python 3.7 and import the standard library, NumPy, PyTorch and the simulator alone.
"""
