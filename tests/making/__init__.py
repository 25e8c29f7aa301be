"""Makes the archives that tests and benchmarks read: one core (`archives`), and workloads built on it."""
