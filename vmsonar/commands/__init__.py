"""The commands, a function each: it parses arguments, calls the library and renders the answer.

Comes in: argv. Goes out: text or JSON on standard output, one-line errors, an exit code. May import everything;
cli.py imports a command only when it is asked for.
"""
