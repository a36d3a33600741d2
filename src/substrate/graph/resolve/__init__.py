"""From the facts of all files to edges between them.

    world     what the project's files define: held in memory, or looked up one by one
    modules   what an import statement's module is, by language
    names     what a name means in a file: its own, imported, re-exported, inherited
    calls     what a call calls, and how sure that is
    edges     the records

Resolution only looks at the world through names. Whatever it looked up for a file is among the
file's mentioned names (`section`), so that a change elsewhere tells which files to do again.
"""

from __future__ import annotations
