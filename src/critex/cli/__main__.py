"""`python -m critex.cli`."""

from critex.cli import main

main()
