"""The command line: words in, exit status out.

    entry.py       where the installed program begins
    main.py        what a failure becomes: message, hint, exit status, crash report
    arguments.py   which verb, and its parser; only that verb's module is imported
    context.py     what a verb is given besides its words
    output.py      the one place that prints
    crash.py       the report an unexpected exception leaves behind
    commands/      one module per verb

Nothing below this package prints, parses words or picks an exit status.
"""
