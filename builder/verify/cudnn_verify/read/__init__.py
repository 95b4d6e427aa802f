"""The half that reads people's texts: logs, notebooks, lists of packages."""
