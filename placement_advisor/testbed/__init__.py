"""Testbeds: devices on which candidates really run, and the trials that are held on them."""
