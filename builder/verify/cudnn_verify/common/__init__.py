"""Parts of both halves: tables, causes, versions, and the commands that mend a cause."""
