"""Every number and every list of names that is a matter of judgement, kept outside the code.

`policies/*.toml` is the only home of such a value. `tables` says which values there are, `parse` turns a parsed file
into one of those tables (pure), `load` finds the files in a wheel or in a checkout and lays a person's own over them.
A value that cannot be read is a refusal naming the file and the key; it is never replaced by a guess.
"""
