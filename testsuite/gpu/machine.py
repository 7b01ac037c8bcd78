"""What a machine has of CUDA: one folder that looks like a toolkit with cuDNN and NCCL, wherever their parts lie (the toolkit,
Debian's packages, Python's nvidia-* packages)."""
import glob, os, re, shutil, site, subprocess, sys, sysconfig


def said(cmd, timeout=60):
    """The output of a command, or '' where it fails or is not there."""
    try:
        p = subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, timeout=timeout)
        return p.stdout.decode(errors='replace').strip() if p.returncode == 0 else ''
    except (OSError, subprocess.TimeoutExpired):
        return ''


def roots():
    """Folders of toolkits, the first that has nvcc first."""
    nvcc = shutil.which('nvcc')
    out = [os.environ.get('CUDA', ''), os.environ.get('CUDA_HOME', ''), os.path.dirname(os.path.dirname(os.path.realpath(nvcc))) if nvcc else '',
           '/usr/local/cuda', *sorted(glob.glob('/usr/local/cuda-*'), reverse=True)]
    return [r for r in out if r and os.path.exists(f'{r}/bin/nvcc')]


def pythons():
    """site-packages of every Python that is at hand."""
    out = {sysconfig.get_path('purelib'), *site.getsitepackages()}
    for p in {shutil.which(n) for n in ('python3', 'python')} - {None}:
        out |= set(said([p, '-c', 'import site; print("\\n".join(site.getsitepackages()))']).splitlines())
    return sorted(d for d in out if os.path.isdir(d))


def toolkit(to):
    """(folder, [(part, where or None)]): bin/nvcc, include/ and lib64/ of links."""
    parts = [f'{r}/{d}' for r in roots() for d in ('', 'targets/x86_64-linux/')]
    inc = [p + '/include' for p in parts] + ['/usr/include', '/usr/include/x86_64-linux-gnu']
    lib = [f'{p}/{d}' for p in parts for d in ('lib64', 'lib')] + ['/usr/lib/x86_64-linux-gnu']
    for s in pythons():
        inc += sorted(glob.glob(f'{s}/nvidia/*/include'))
        lib += sorted(glob.glob(f'{s}/nvidia/*/lib'))
    for d in 'bin', 'include', 'lib64':
        os.makedirs(f'{to}/{d}', exist_ok=True)
    found = [('nvcc', roots()[0] + '/bin/nvcc' if roots() else None)]
    if roots():
        with open(f'{to}/bin/nvcc', 'w') as f:
            f.write(f'#!/bin/sh\nexec {roots()[0]}/bin/nvcc -isystem {to}/include "$@"\n')
        os.chmod(f'{to}/bin/nvcc', 0o755)
    for part, header, names in (('cudart', 'cuda_runtime_api.h', ('cudart',)), ('cuBLAS', 'cublas_v2.h', ('cublas', 'cublasLt')),
                                ('cuDNN', 'cudnn.h', ('cudnn',)), ('NCCL', 'nccl.h', ('nccl',))):
        h = next((d for d in inc if os.path.exists(f'{d}/{header}')), None)
        files = [links(lib, n, to) for n in names]
        if h and h != '/usr/include':
            for f in os.listdir(h):
                if not os.path.lexists(f'{to}/include/{f}'):
                    os.symlink(f'{h}/{f}', f'{to}/include/{f}')
        found.append((part, f'{h}, {files[0]}' if h and all(files) else None))
    return to, found


def links(folders, name, to):
    """Links libNAME.so* and its parts (libNAME_*.so*) of the first folder that has it; its file."""
    for d in folders:
        have = sorted(f for f in (os.listdir(d) if os.path.isdir(d) else []) if re.match(rf'lib{name}(_\w+)?\.so(\.|$)', f))
        plain = [f for f in have if f.startswith(f'lib{name}.so')]
        if not plain:
            continue
        for f in have:
            if not os.path.lexists(f'{to}/lib64/{f}'):
                os.symlink(f'{d}/{f}', f'{to}/lib64/{f}')
        if not os.path.lexists(f'{to}/lib64/lib{name}.so'):
            os.symlink(f'{d}/{plain[-1]}', f'{to}/lib64/lib{name}.so')
        return f'{d}/{plain[-1]}'
    return None


def arch():
    """sm_NN of the first GPU, or ''."""
    cap = said(['nvidia-smi', '--query-gpu=compute_cap', '--format=csv,noheader']).splitlines()
    return 'sm_' + cap[0].strip().replace('.', '') if cap and re.fullmatch(r'\d+\.\d', cap[0].strip()) else ''


def describe():
    """[(what, text)] of the machine."""
    cpu = re.search(r'model name\s*:\s*(.*)', open('/proc/cpuinfo').read())
    nvcc = said([roots()[0] + '/bin/nvcc', '--version']).splitlines() if roots() else []
    smi = said(['nvidia-smi', '--query-gpu=name,memory.total,driver_version,clocks.max.sm,clocks.max.memory', '--format=csv,noheader'])
    return [('GPU', smi or 'none that nvidia-smi finds'), ('CPU', f'{os.cpu_count()} x {cpu.group(1) if cpu else "?"}'),
            ('system', next((l.split('=')[1].strip('"\n') for l in open('/etc/os-release') if l.startswith('PRETTY_NAME')), '?')),
            ('nvcc', nvcc[-1] if nvcc else 'none'), ('gcc', said(['gcc', '-dumpfullversion']) or 'none'),
            ('python', sys.version.split()[0])]
