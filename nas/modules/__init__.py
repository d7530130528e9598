"""The torch reading of a graph: a module for every layer, and the network that runs them in order.

Importing it registers the modules of images and of sequences in the table (`module_table.py`).
"""

from nas.modules import images, sequences  # each registers its modules in the table
from nas.modules.module_table import module_of
from nas.modules.network import Network, Step, to_device

__all__ = ["Network", "Step", "images", "module_of", "sequences", "to_device"]
