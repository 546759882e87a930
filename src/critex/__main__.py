"""`python -m critex`: the command line."""

from critex.cli import main

main()
