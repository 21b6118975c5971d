"""Corrections learned from receipts: how far predicted seconds are off, and how much they vary."""
