"""Frozen values that several siblings share. No I/O happens here."""
