"""PyTorch modules trained by the programs that pdcc ($PDCC, or in PATH) writes: export, train, load. What it refuses is a pdcc.Error."""
from .border import ExportError
from .export import export
from .program import CheckError, Error
from .train import load, train

__all__ = ['export', 'train', 'load', 'Error', 'CheckError', 'ExportError']
