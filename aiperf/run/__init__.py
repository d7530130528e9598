"""Execution of a run, from its configuration to the last line of its journal.

- `checks` refuses what cannot be run, before anything is written; `rehearsal` shows what would be run.
- `run` begins and resumes a run, and turns signals into a clean end.
- `master` runs one leg: `initialisation` before the clock starts, then `handler`, which takes the messages of
  the groups one at a time, and in the end the test.
- `groups` decides which group gets the next trial and which one is lost; `group` is the state of one.
- `ledger` writes the journal and everything that follows from a line; `notarisation` hands it to a notary.
- `display` shows progress.
"""
