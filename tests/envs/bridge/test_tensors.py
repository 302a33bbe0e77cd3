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
@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from(["float32", "bool", "uint8", "int32"]))
def test_tensors_become_arrays_in_the_same_memory(n, s, dtype):
    tensor = torch.randint(0, 2, (n, s)).to(getattr(torch, dtype))
    array = to_jax(tensor, "observation", "zero_copy")
    assert array.unsafe_buffer_pointer() == tensor.data_ptr()
    assert array.dtype == dtype
    np.testing.assert_array_equal(array, tensor.numpy())


def test_arrays_become_tensors_in_the_same_memory_unless_a_private_copy_is_asked_for():
    array = jnp.arange(12.0).reshape(3, 4) + 0.5
    for private in (False, True):
        tensor = to_torch(array, "actions", private=private)
        assert (tensor.data_ptr() == array.unsafe_buffer_pointer()) is not private
        np.testing.assert_array_equal(tensor.numpy(), array)


def test_staging_copies_and_gives_the_same_numbers():
    tensor = torch.rand(5, 3)
    array = to_jax(tensor, "observation", "staging")
    assert array.unsafe_buffer_pointer() != tensor.data_ptr()
    tensor.zero_()
    assert float(jnp.max(array)) > 0
    back = to_torch(array, "actions", "staging")
    back.zero_()
    assert float(jnp.max(array)) > 0


# What the bridge relies on and an upgrade of either library may change.


def aligned(size, dtype):
    tensor = torch.zeros(size, dtype=dtype)
    assert tensor.data_ptr() % 64 == 0
    return tensor


def test_unaligned_memory_is_copied_silently_or_refused():
    tensor = aligned(65, torch.float32)[1:]
    assert jax.dlpack.from_dlpack(tensor).unsafe_buffer_pointer() != tensor.data_ptr()
    with pytest.raises(ValueError, match="copy"):
        jax.dlpack.from_dlpack(tensor, copy=False)


@pytest.mark.parametrize(("dtype", "becomes"), [(torch.int64, "int32"), (torch.float64, "float32")])
def test_wide_types_would_be_cast_silently_and_so_are_refused(dtype, becomes):
    tensor = aligned(16, dtype)
    assert jax.dlpack.from_dlpack(tensor).dtype == becomes
    with pytest.raises(errors.DtypeError, match=f"no silent cast; got {str(dtype)[6:]}"):
        to_jax(tensor, "reset")


def test_a_transposed_view_keeps_its_layout_in_jax_but_strided_ones_are_not_implemented():
    tensor = torch.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(jax.dlpack.from_dlpack(tensor.t()), tensor.numpy().T)
    for view in (torch.zeros(8)[::2], torch.zeros(1, 3).expand(4, 3)):
        with pytest.raises(jax.errors.JaxRuntimeError, match="UNIMPLEMENTED"):
            jax.dlpack.from_dlpack(view)
        with pytest.raises(errors.NonContiguousError, match=r"strides.*clone"):
            to_jax(view, "observation")


def test_a_tensor_that_requires_a_gradient_is_refused_by_both():
    tensor = torch.zeros(4, requires_grad=True)
    with pytest.raises(BufferError):
        jax.dlpack.from_dlpack(tensor)
    with pytest.raises(errors.GradTensorError, match="detach first"):
        to_jax(tensor, "observation")


def test_empty_tensors_and_bfloat16_pass():
    assert to_jax(torch.zeros((0, 3)), "observation").shape == (0, 3)
    assert to_jax(aligned(32, torch.bfloat16), "observation", "zero_copy").dtype == jnp.bfloat16
    assert to_jax(aligned(32, torch.bfloat16), "observation", "staging").dtype == jnp.bfloat16


def test_writing_the_tensor_changes_the_array_and_writing_to_a_shared_array_is_possible():
    tensor = aligned(16, torch.float32)
    array = jax.dlpack.from_dlpack(tensor)
    tensor += 1.0
    assert float(array[0]) == 1.0
    array = jnp.zeros(16) + 2.0
    torch.from_dlpack(array).mul_(0)
    assert float(array[0]) == 0.0


def test_traced_and_raw_and_read_only_things_are_no_tensors():
    with pytest.raises(errors.TracedCallError, match="host loop, or through buffer_callback"):
        jax.jit(lambda x: to_torch(x, "actions"))(jnp.zeros(3))
    assert not hasattr(jax.dlpack, "to_dlpack")
    frozen = np.zeros(4)
    frozen.flags.writeable = False
    with pytest.raises(BufferError):
        jax.dlpack.from_dlpack(frozen)
    torch.from_dlpack(frozen)  # which makes it writable


def test_other_devices_are_refused_or_copied(monkeypatch):
    import envs.bridge.tensors as module

    monkeypatch.setattr(module, "share_device", lambda tensor: False)
    with pytest.raises(errors.DeviceMismatchError, match=r'on cpu, .* on cpu:0.*mode="staging"'):
        to_jax(torch.zeros(3), "observation", "zero_copy")
    np.testing.assert_array_equal(to_jax(torch.ones(3), "observation", "auto"), np.ones(3))
    meta = torch.device("meta")
    with pytest.raises(errors.DeviceMismatchError, match="meta"):
        to_torch(jnp.zeros(3), "actions", "zero_copy", device=meta)
    with pytest.raises(errors.SimBridgeError, match="zero_copy, staging, auto; got 'quick'"):
        to_jax(torch.zeros(3), "observation", "quick")
