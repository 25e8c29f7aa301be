"""Real parts: fixtures that start engines, brokers, guests and browsers, and a smoke test of each."""
