"""Running one command and saying what it was isolated by.

`protocol` says what every strategy promises; `direct` runs without any isolation. A world never
records: the recorder asks it to run, and then history and trace to remember.
"""
