"""Exact answers about a text. The models' methods forward to this package; import from its modules what you need."""
