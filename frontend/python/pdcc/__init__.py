"""PyTorch modules trained by the programs that pdcc writes.

    pdcc.export(module, args, path)         the graph, and what ONNX does not carry of the module (its contract)
    pdcc.train(module, dataset, ...)        compiled, run, and the weights back in the module
    pdcc.load(module, folder)               weights of a run that was made by hand

The program `pdcc` is found as $PDCC or in PATH. What it refuses is a pdcc.Error with its text.
"""
from .border import ExportError
from .export import export
from .program import CheckError, Error
from .train import load, train

__all__ = ['export', 'train', 'load', 'Error', 'CheckError', 'ExportError']
