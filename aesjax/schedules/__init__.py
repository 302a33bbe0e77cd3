"""Entropy-weight schedules and the drift proxies that drive them."""
