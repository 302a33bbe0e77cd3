import warnings
from contextlib import suppress

# Brax imports JAXopt, which warns that nobody maintains it.
with warnings.catch_warnings(), suppress(ModuleNotFoundError):
    warnings.filterwarnings("ignore", "JAXopt is no longer maintained", DeprecationWarning)
    import brax.envs  # noqa: F401
