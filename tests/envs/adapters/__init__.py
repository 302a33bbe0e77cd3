import warnings

# Brax imports JAXopt, which warns that nobody maintains it.
with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "JAXopt is no longer maintained", DeprecationWarning)
    import brax.envs  # noqa: F401
