"""What a worker has imported before its first command, see `tests.campaign.worker`; nothing here starts JAX."""
