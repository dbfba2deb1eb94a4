"""The JIT audit: what compiled at run time, why, and whether it was allowed to. Pure: from event lines to a report.

events     event lines as values
budget     what each phase allows, read from TOML
causes     why a compile happened: the nearest known variant and what differs
declare    the lines to add to a declaration, so that a build holds the variants that were compiled
judge      counts, findings and the verdict
"""
