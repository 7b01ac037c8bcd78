"""Hosts on one machine: network namespaces with host names of their own, joined by a bridge in one more.

An agent in ssh's place enters them, so that mpirun starts its daemons there; links may be shaped (tc tbf), cut and joined.
Namespaces are named after this process; `close` takes all of them away, whatever was made.
"""
import os, shutil, signal, subprocess

AGENT = '''#!/bin/sh
# in ssh's place: [options] HOST COMMAND...
while [ "${1#-}" != "$1" ]; do shift; done
host=$1; shift
exec ip netns exec "$host" unshare --uts sh -c "hostname $host; $*"
'''


def why_not():
    """Why there can be no such hosts here; None: there can."""
    missing = [t for t in ('ip', 'tc', 'unshare', 'mpirun') if not shutil.which(t)]
    if missing or os.geteuid():
        return 'not root' if os.geteuid() else f'no {missing[0]}'
    said = subprocess.run(['mpirun', '--version'], stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
    if b'Open MPI' not in said:
        return "mpirun is not Open MPI's"
    trial = f'pdc{os.getpid()}trial'       # where / is no mount point (a chroot) none can be entered
    for cmd in ('ip', 'netns', 'add', trial), ('ip', 'netns', 'exec', trial, 'true'), ('ip', 'netns', 'del', trial):
        p = subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True)
        if p.returncode:
            subprocess.run(['ip', 'netns', 'del', trial], stderr=subprocess.DEVNULL)
            return f'{" ".join(cmd)}: {p.stdout.strip()}'
    return None


class Net:
    def __init__(self, tmp, hosts, rate=None, burst=32768, packet=9000):
        """rate: Mb/s of every link; None: as fast as this machine is. burst: bytes that may go at once after a pause."""
        self.burst, self.packet = burst, packet
        self.base, self.tmp, self.rate, self.agent = f'pdc{os.getpid()}', tmp, rate, f'{tmp}/agent'
        self.hosts, self.switch = [f'{self.base}h{i}' for i in range(hosts)], f'{self.base}s'

    def cmd(self, *args):
        p = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        if p.returncode:
            raise OSError(f'{" ".join(args)}: {p.stdout.decode(errors="replace").strip()}')

    def shape(self, ns, dev):
        self.cmd('tc', '-n', ns, 'qdisc', 'add', 'dev', dev, 'root', 'tbf', 'rate', f'{self.rate}mbit', 'burst', str(self.burst), 'limit', '1mb')
        self.cmd('ip', '-n', ns, 'link', 'set', dev, 'gso_max_size', str(self.packet))

    def open(self):
        with open(self.agent, 'w') as f:
            f.write(AGENT)
        os.chmod(self.agent, 0o755)
        self.cmd('ip', 'netns', 'add', self.switch)
        self.cmd('ip', '-n', self.switch, 'link', 'add', 'br0', 'type', 'bridge')
        self.cmd('ip', '-n', self.switch, 'link', 'set', 'br0', 'up')
        names = '127.0.0.1 localhost\n' + ''.join(f'10.79.0.{i + 1} {h}\n' for i, h in enumerate(self.hosts))
        for i, h in enumerate(self.hosts):
            self.cmd('ip', 'netns', 'add', h)
            os.makedirs(f'/etc/netns/{h}')
            with open(f'/etc/netns/{h}/hosts', 'w') as f:
                f.write(names)
            self.cmd('ip', 'link', 'add', 'eth0', 'netns', h, 'type', 'veth', 'peer', 'name', f'port{i}', 'netns', self.switch)
            self.cmd('ip', '-n', self.switch, 'link', 'set', f'port{i}', 'master', 'br0', 'up')
            self.cmd('ip', '-n', h, 'addr', 'add', f'10.79.0.{i + 1}/24', 'dev', 'eth0')
            for dev in ('lo', 'eth0'):
                self.cmd('ip', '-n', h, 'link', 'set', dev, 'up')
            if self.rate:
                self.shape(h, 'eth0')
                self.shape(self.switch, f'port{i}')
                # what came is said at once: an answer that the kernel puts off by 40 ms stops a sender whose window is full
                self.cmd('ip', '-n', h, 'route', 'change', '10.79.0.0/24', 'dev', 'eth0', 'proto', 'kernel', 'scope', 'link', 'src',
                         f'10.79.0.{i + 1}', 'quickack', '1')
        self.cmd('ip', 'netns', 'exec', self.hosts[0], 'unshare', '--uts', 'true')

    def cut(self, i, joined=False):
        """Takes the cable of host i out, or puts it in again."""
        self.cmd('ip', '-n', self.switch, 'link', 'set', f'port{i}', 'up' if joined else 'down')
        for ns in self.hosts if joined else []:     # addresses that did not answer meanwhile are asked for again
            self.cmd('ip', '-n', ns, 'neigh', 'flush', 'all')

    def mca(self):
        """What Open MPI is told to go by these links alone."""
        return {'pml': 'ob1', 'btl': 'tcp,self', 'btl_tcp_if_include': 'eth0', 'oob_tcp_if_include': 'eth0',
                'plm_rsh_agent': self.agent, 'mpi_yield_when_idle': '1', 'osc': '^ucx'}

    def close(self):
        for ns in [*self.hosts, self.switch]:
            if os.path.exists(f'/run/netns/{ns}'):
                pids = subprocess.run(['ip', 'netns', 'pids', ns], stdout=subprocess.PIPE).stdout.split()
                for p in pids:      # what a cut run left behind: all in a namespace made above
                    try:
                        os.kill(int(p), signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                subprocess.run(['ip', 'netns', 'del', ns])
            shutil.rmtree(f'/etc/netns/{ns}', ignore_errors=True)
