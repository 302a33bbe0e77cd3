"""Maximum-entropy carriers and what they share."""
