"""A study: what is compared (config, entries, methods), its programs (build), its training, and its folder."""
