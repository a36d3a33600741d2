"""The command line: arguments in, exit status out.

    startup.py               where the installed program begins
    main.py                  turns a failure into message, hint, exit status, crash report
    ctx.py                   the program `ctx`
    frame/arguments.py       finds the verb and its parser; imports only that verb's module
    frame/context.py         what a verb gets besides its arguments
    frame/output.py          the only module that prints
    frame/crash_report.py    the report of an unexpected exception
    commands/                one module per verb of `substrate`
    ctx_commands/            one module per verb of `ctx`
    render/                  answers as text for people

Nothing below this package prints, parses arguments or picks an exit status.
"""
