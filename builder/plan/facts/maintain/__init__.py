"""How the tables are read again, and what the probe carries of them: ``rtbuild facts``."""
