"""A list and a watch keep a store up to date. Only `reflector` does I/O; the client is in `informers.http`."""
