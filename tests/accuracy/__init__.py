"""How right the recorded figures are: real workloads, real recorders, and the kernel's own accounts as the truth.

Workloads (`workloads`, `mixtures`) are plans for a small C program (`actor.c`), real shells and builds. Each job
runs in a control group of its own (`oracle`), whose CPU time the kernel keeps to the nanosecond whoever waits for
whom; `truth` puts that together with what the actors tell of themselves. `stage` runs all of them side by side
under one recorder per mode (`modes`, `recording`); `compare` holds every figure against the truth. The tests
assert the verdicts, and `python -m tests.accuracy docs/accuracy.md` writes them as a page (`page`). Nothing here
is imported by the product, and the product is used through its command line, its reader and its views.
"""
