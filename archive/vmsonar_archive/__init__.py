"""The archive, which is the contract: records, their bytes, and everything that writes, reads, proves and packs them.

Imports nothing else of ours and draws nothing on a terminal. Rooms, from the ground up: system and records, format,
read and dialect, write, parquet, verify and bundle.
"""
