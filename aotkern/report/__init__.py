"""Presentation: what the audits and the build know, as text for people and as JSON for machines.

Everything here takes values and returns texts or plain JSON values. No bundle is opened, nothing compared or decided.
"""
