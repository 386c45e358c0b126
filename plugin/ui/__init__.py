"""The page in the browser: its HTML, the server on loopback, and the watches that tell of changes. It only reads."""
