"""Names of nodes as names in Python and in ONNX."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping

from nas.graph import INPUT, Graph

# What every `torch.nn.Module` has already.
OF_MODULES = """
T_destination add_module apply bfloat16 buffers call_super_init children compile cpu cuda double
dump_patches eval extra_repr float forward get_buffer get_extra_state get_parameter get_submodule half ipu
load_state_dict modules mtia named_buffers named_children named_modules named_parameters parameters
register_backward_hook register_buffer register_forward_hook register_forward_pre_hook
register_full_backward_hook register_full_backward_pre_hook register_load_state_dict_post_hook
register_load_state_dict_pre_hook register_module register_parameter register_state_dict_post_hook
register_state_dict_pre_hook requires_grad_ set_extra_state set_submodule share_memory state_dict to
to_empty train training type xpu zero_grad
"""
OF_THE_FILE = "self torch nn F Path Tensor load load_file Network attention Experts images symbols logits"
"""Names that the exported file uses itself (`torch_file.py`)."""
TAKEN = frozenset([*OF_MODULES.split(), *OF_THE_FILE.split(), *keyword.kwlist, *keyword.softkwlist])
"""Names that no node can have; such a node gets a number at its end."""


class PortableError(ValueError):
    """A network that the other program has no room for. Its message says the limit."""


def identifiers(graph: Graph) -> Mapping[str, str]:
    """A name in Python for each tensor of the graph: block1_1_conv for "block1.1.conv".

    They have ASCII letters, digits and underscores only, so that a file made of anybody's graph holds nothing
    but names. A node whose name is taken, or equals another's after that, gets the next free number.
    """
    taken = {*TAKEN, graph.head.input_name}
    found = {INPUT: graph.head.input_name}
    for node in graph.nodes:
        plain = re.sub(r"[^A-Za-z0-9]+", "_", node.name).strip("_")
        plain = plain if plain[:1].isalpha() else f"node_{plain}".rstrip("_")
        name, number = plain, 1
        while name in taken:
            number += 1
            name = f"{plain}_{number}"
        taken.add(name)
        found[node.name] = name
    return found
