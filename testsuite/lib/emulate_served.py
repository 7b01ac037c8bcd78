"""What asynchronous servers compute, one after another: a run is told in the order of arrival that --arrivals recorded.

Lines of a server's record (runtime/servers/serve.c):

    pull PARAMETER RANK STEP VERSION [ROWS ...]     the device reads what VERSION updates made, all of it or these rows
    push PARAMETER RANK STEP VERSION                its gradient of that step is update VERSION of the parameter

What trains by itself is a replica: a device with the whole model, or a device of each stage. Its gradient of a step is that of the
sum of the loss over its microbatches at the weights that its devices pulled in the step, divided by its own count of labels;
forward, backward and optimizers are those of emulate.py. RANK r of R replicas is of replica r mod R. A PARAMETER that is none of the
model is a piece of a table, NAME.ROW: the rows from ROW on, to the next piece.
"""
import glob, re
import pdcctest as T


def read(folder):
    """{rank of a server: [(what, parameter, rank, step, version, rows)]}"""
    out = {}
    for path in glob.glob(f'{folder}/rank*.txt'):
        lines = [line.split() for line in open(path)]
        out[int(re.search(r'rank(\d+)', path)[1])] = [(x[0], x[1], *map(int, x[2:5]), list(map(int, x[5:]))) for x in lines]
    return out


class Run:
    def __init__(self, dev, replicas, micro, optimizer, names):
        """dev: which adds what a replica has of them; micro: microbatches of a step, over all replicas; names: what servers hold."""
        self.dev, self.replicas, self.micro, self.optimizer = dev, replicas, micro, optimizer
        self.w = dev.weights()
        self.version = {p: 0 for p in names}
        self.piece = {p: (p, slice(None)) for p in names if p in self.w}
        cut = sorted((p.rpartition('.')[0], int(p.rpartition('.')[2])) for p in names if p not in self.w)
        for (table, row), (other, end) in zip(cut, cut[1:] + [(None, 0)]):
            self.piece[f'{table}.{row}'] = table, slice(row, end if other == table else None)
        self.copy = [dev.weights() for _ in range(replicas)]    # what each replica has
        self.made, self.loss = {}, {}

    def make_gradient(self, r, step):
        """Replica r has pulled all that it reads in this step."""
        own, n = self.micro // self.replicas, 0
        for mb in range(r * own, (r + 1) * own):
            self.loss[step, mb] = self.dev.forward(self.copy[r], step * self.micro + mb)
            sums = self.dev.backward(self.copy[r], more=mb > r * own, last=mb == (r + 1) * own - 1)
            n += self.loss[step, mb][1]
        self.made[r, step] = self.dev.gradients(sums), n

    def event(self, what, p, rank, step, version, rows):
        if what == 'pull':
            if version != self.version[p]:
                raise T.Failed(f'rank {rank} pulls version {version} of {p} in step {step}; {self.version[p]} updates came before')
            table, all_of_it = self.piece[p]
            at = rows or all_of_it
            self.copy[rank % self.replicas][table][at] = self.w[table][at]
            return
        g, n = self.made[rank % self.replicas, step]
        table, at = self.piece[p]
        self.w[table][at] = self.optimizer.step(p, self.w[table][at], g[table][at], n, self.version[p])
        self.version[p] += 1
        if version != self.version[p]:
            raise T.Failed(f'the gradient of {p} from rank {rank}, step {step}, is update {version}, not {self.version[p]}')

    def losses(self):
        steps = {s for s, _ in self.loss}
        of = lambda s, k: sum(self.loss[s, mb][k] for mb in range(self.micro))
        return [of(s, 0) / of(s, 1) for s in sorted(steps)]


def served(dev, replicas, micro, optimizer, logs):
    """Plays what all servers recorded: a push waits until everything that its replica read in that step was pulled, a pull
    until everything of the step before was. Gives the Run: .w, .losses()."""
    run = Run(dev, replicas, micro, optimizer, {x[1] for log in logs.values() for x in log})
    left = {}
    for log in logs.values():
        for what, _, rank, step, _, _ in log:
            left[rank % replicas, step] = left.get((rank % replicas, step), 0) + (what == 'pull')
    at = {k: 0 for k in logs}
    moved = True
    while moved:
        moved = False
        for k, log in logs.items():
            while at[k] < len(log):
                what, p, rank, step, version, rows = log[at[k]]
                r = rank % replicas
                if left.get((r, step - 1)) or (what == 'push' and left[r, step]):
                    break
                run.event(what, p, rank, step, version, rows)
                left[r, step] -= what == 'pull'
                if what == 'pull' and not left[r, step]:
                    run.make_gradient(r, step)
                at[k] += 1
                moved = True
    if any(at[k] < len(log) for k, log in logs.items()):
        raise T.Failed('the records of the servers have no common order')
    return run


def ahead(log):
    """Steps between a pull and the slowest device's last push of an earlier step, at most: by one server's record."""
    pushed = {(x[2], x[1]): 0 for x in log if x[0] == 'push'}
    most = 0
    for what, p, rank, step, _, _ in log:
        if what == 'push':
            pushed[rank, p] = step + 1
        else:
            most = max(most, step - min(pushed.values()))
    return most
