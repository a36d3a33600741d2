"""The use cases. Read `record_command` first: it is the way a command travels.

record_command       run a command and write down what it changed
roll_back            undo, redo, rollback, restore: change the tree back, with a way forward
keep                 checkpoints, sessions, compaction
rewrite_working_copy move a git working copy to another commit, keeping the work in it
recoveries           every snapshot: list, search, bring back, prune
ask                  log, show, diff, blame, status: questions that change nothing
api                  the same for Python programs: `from substrate import History`
"""
