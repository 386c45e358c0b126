"""What all tests on a real control plane share: clients, documents, programs and waits."""
