"""What both halves use: tables, causes, versions, and the commands that mend a cause."""
