"""One self-contained page per machine: text by Python, charts by a small script, nothing from elsewhere."""
