"""JSON schemas of everything that aotkern prints for machines."""
