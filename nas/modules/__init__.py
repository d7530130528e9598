"""The torch reading of a graph: a module for every layer, and the network that runs them in order."""

from nas.modules import experts, images, sequences  # each registers its modules in the table
from nas.modules.images import TOO_FEW_CHANNELS
from nas.modules.network import Network, Step
from nas.modules.table import module_of

__all__ = ["TOO_FEW_CHANNELS", "Network", "Step", "experts", "images", "module_of", "sequences"]
