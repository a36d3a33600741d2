"""One module per verb, each with `NAME`, `HELP`, `EXAMPLE`, `configure` and `run`.

The table of verbs stands in `substrate.cli.arguments`; `Command` there is the shape.
"""
