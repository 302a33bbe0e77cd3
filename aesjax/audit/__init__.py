"""The claim audit: each quantitative sentence of the AES paper beside what finished studies say of it."""
