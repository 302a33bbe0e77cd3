"""What the scripts of the paper's tables share: which studies a table needs, training them, and printing it."""
