"""`python -m vmsonar` is the command line."""

from vmsonar.cli import main

main()
