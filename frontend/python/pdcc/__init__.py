"""PyTorch modules trained by the programs that pdcc writes: export, train, load. The program `pdcc` is found as $PDCC or in PATH; what it
refuses is a pdcc.Error with its text."""
from .border import ExportError
from .export import export
from .program import CheckError, Error
from .train import load, train

__all__ = ['export', 'train', 'load', 'Error', 'CheckError', 'ExportError']
