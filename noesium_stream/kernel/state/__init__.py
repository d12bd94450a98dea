"""Graph states as data: typed JSON within the size of a record, values that nodes return, and hashes.

Open `typed_json.py` first.
"""
