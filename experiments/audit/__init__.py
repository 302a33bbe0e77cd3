"""The paper's claims against finished studies."""
