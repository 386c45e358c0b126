"""A list and a watch keep a store up to date: the state machine, its effects, and the parser.

Only `reflector` does I/O. The client is in `informers.http`.
"""
