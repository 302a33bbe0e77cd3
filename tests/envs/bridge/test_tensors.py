"""Tensors and arrays that share memory: what is promised, what is refused, and what JAX and PyTorch do today."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.bridge import errors
from envs.bridge.tensors import to_jax, to_torch
from tests.envs.bridge.common import torch as installed

torch = installed()


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from(["float32", "bool"]))
def test_tensors_become_arrays_in_the_same_memory(n, s, dtype):
    tensor = torch.randint(0, 2, (n, s)).to(getattr(torch, dtype))
    array = to_jax(tensor, "observation", "zero_copy")
    assert array.unsafe_buffer_pointer() == tensor.data_ptr()
    assert array.dtype == dtype
    np.testing.assert_array_equal(array, tensor.numpy())


@pytest.mark.parametrize("mode", ["auto", "staging"])
def test_arrays_become_tensors_that_may_be_written_to(mode):
    array = jnp.arange(12.0).reshape(3, 4) + 0.5
    tensor = to_torch(array, "actions", mode, device="cpu")
    np.testing.assert_array_equal(tensor.numpy(), array)
    tensor.mul_(0)
    assert array.all()


# The bridge relies on these properties, which an upgrade of either library may change.


def aligned(size, dtype):
    tensor = torch.zeros(size, dtype=dtype)
    assert tensor.data_ptr() % 64 == 0
    return tensor


@pytest.mark.parametrize(("dtype", "becomes"), [(torch.int64, "int32"), (torch.float64, "float32")])
def test_wide_types_would_be_cast_silently_and_so_are_refused(dtype, becomes):
    tensor = aligned(16, dtype)
    assert jax.dlpack.from_dlpack(tensor).dtype == becomes
    with pytest.raises(errors.SimBridgeError, match=f"no silent cast; got {str(dtype)[6:]}"):
        to_jax(tensor, "reset")


def test_other_devices_are_refused_or_copied(monkeypatch):
    import envs.bridge.tensors as module

    monkeypatch.setattr(module, "share_device", lambda tensor: False)
    with pytest.raises(errors.SimBridgeError, match=r'on cpu, .* on cpu:0.*mode="staging"'):
        to_jax(torch.zeros(3), "observation", "zero_copy")
    np.testing.assert_array_equal(to_jax(torch.ones(3), "observation", "auto"), np.ones(3))
    meta = torch.device("meta")
    with pytest.raises(errors.SimBridgeError, match="meta"):
        to_torch(jnp.zeros(3), "actions", "zero_copy", device=meta)
    with pytest.raises(errors.SimBridgeError, match="zero_copy, staging, auto; got 'quick'"):
        to_jax(torch.zeros(3), "observation", "quick")
