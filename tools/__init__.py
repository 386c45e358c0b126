"""Programs that only developers run: the chart, the reference, the pictures and releases. No product code is here."""
