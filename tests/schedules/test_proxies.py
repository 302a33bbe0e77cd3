"""Proxies: golden values and refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aesjax.schedules import PROXIES, critic_drift, dynamics, td_mean, td_quantile, value_loss
from aesjax.types import Signals

CASES = [(name, source) for name, spec in PROXIES.items() for source in spec.fields]
FULL = Signals(
    td_error=jnp.array([-4.0, 1.0, 2.0, 3.0, 0.0]),
    value_loss=jnp.float32(7.0),
    critic_drift=jnp.float32(0.5),
    fresh_td_error=jnp.array([-8.0, 2.0, 4.0, 6.0, 0.0]),
    fresh_critic_drift=jnp.float32(0.25),
    model_error=jnp.float32(0.5),
)


@pytest.mark.parametrize(
    ("proxy", "want"),
    [
        (td_quantile(), 3.6),
        (td_quantile(0.5), 2.0),
        (td_quantile(0.5, "fresh"), 4.0),
        (td_mean(), 2.0),
        (td_mean(source="fresh"), 4.0),
        (value_loss(), 7.0),
        (value_loss(source="fresh"), 24.0),
        (critic_drift(), 0.5),
        (critic_drift(source="fresh"), 0.25),
        (dynamics(), 0.5),
    ],
)
def test_proxy_value(proxy, want):
    np.testing.assert_allclose(proxy(FULL), want, rtol=1e-6)


@pytest.mark.parametrize(("name", "source"), CASES)
def test_proxy_reads_one_field_and_names_it_when_it_is_absent(name, source):
    field = PROXIES[name].fields[source]
    proxy = PROXIES[name](0.9, source)
    only = Signals(**{field: getattr(FULL, field)})
    np.testing.assert_array_equal(proxy(only), proxy(FULL))
    with pytest.raises(ValueError, match=f"proxy '{name}' needs Signals.{field} of shape"):
        jax.eval_shape(proxy, FULL._replace(**{field: None}))


def test_unknown_source_and_proxy_are_named():
    with pytest.raises(ValueError, match="proxy 'td_mean' has no source 'replay'; sources: update, fresh"):
        td_mean(source="replay")
