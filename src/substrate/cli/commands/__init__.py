"""One module per verb: NAME, HELP, EXAMPLE, configure, run."""
