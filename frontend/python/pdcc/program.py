"""The program pdcc, what it writes, and what that writes when it runs."""
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import warnings
import numpy        # which torch and onnx bring
import torch

class Error(Exception):
    """What pdcc, the build or the run said."""

class CheckError(Error):
    """The emitted program does not do what the module does."""

def need(there, text):
    if not there:
        raise Error(text)

def pdcc():
    path = shutil.which(os.environ.get('PDCC') or 'pdcc')
    need(path, f"the program {os.environ.get('PDCC') or 'pdcc'} is not there; PDCC is to name pdcc, or PATH to have it")
    return path

def call(*cmd):
    p = subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    said = p.stdout.decode(errors='replace').strip()
    need(not p.returncode, said or f'{cmd[0]}: exit {p.returncode}')
    for line in said.splitlines():
        if ' warning: ' in line and '[-W' in line:
            warnings.warn(line, stacklevel=2)

def write_data(tensors, folder):
    """One .npy file per input; the flags that name them."""
    flags = []
    for name, t in tensors.items():
        need(t.dtype in (torch.float32, torch.float64, torch.int64, torch.int32, torch.bool, torch.uint8),
             f'input {name}: data of {t.dtype} cannot be given to pdcc')
        path = os.path.join(folder, f'in_{name}.npy')
        numpy.save(path, t.detach().cpu().numpy())
        flags += ['--data', f'{name}={path}']
    return flags

def written(model, folder, flags):
    call(pdcc(), str(model), '-o', folder, '--force', *flags)

def run(folder, steps, progress=False):
    """Builds what was written; the losses of a run."""
    call('make', '-s', '-C', folder)
    env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1')
    tail = []
    with subprocess.Popen(['bin/pdrun', '.', '--', '--steps', str(steps)], cwd=folder, env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL) as p:
        for line in p.stdout:
            tail = tail[-30:] + [line.decode(errors='replace')]
            m = re.match(r'step +(\d+)/(\d+).*?(loss \S+)', tail[-1])
            if m and progress:
                done = 30 * int(m[1]) // int(m[2])
                print(f"\r[{'#' * done}{'.' * (30 - done)}] {m[1]}/{m[2]} {m[3]} ", end='', file=sys.stderr, flush=True)
    sys.stderr.write('\n' * bool(progress))
    need(not p.returncode, ''.join(tail).strip())
    with open(os.path.join(folder, 'run', 'latest', 'losses.txt')) as f:
        return [float(line.split()[1]) for line in f if line.strip() and line[0] != '#']

def trained(folder):
    """{name: tensor} of the weights and running statistics that a run left."""
    path = os.path.join(folder, 'run', 'latest', 'trained.safetensors')
    need(os.path.exists(path), f'{path} is not there: make run has not ended in {folder}')
    with open(path, 'rb') as f:
        blob = f.read()
    start = 8 + struct.unpack('<Q', blob[:8])[0]
    kinds, out = {'F32': torch.float32, 'F64': torch.float64, 'F16': torch.float16, 'BF16': torch.bfloat16}, {}
    for name, t in json.loads(blob[8:start]).items():
        if name != '__metadata__' and t['dtype'] in kinds:
            a, b = t['data_offsets']
            x = torch.frombuffer(bytearray(blob[start + a:start + b]), dtype=kinds[t['dtype']]) if b > a else torch.zeros(0)
            out[name] = x.reshape(t['shape'])
    return out
