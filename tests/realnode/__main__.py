"""Finds or builds everything that the real node needs: its programs, and the controller's image."""

from tests.realnode import image
from tests.realnode.node import Programs

if __name__ == "__main__":
    Programs()
    print(image.built().name)
