"""Makes all files of a release: `make release VERSION=X.Y.Z`. See docs/releasing.md. It pushes nothing."""
