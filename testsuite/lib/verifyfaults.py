"""Faults planted into the distributed program of pdcc verify, which must name the tensor that each makes wrong first.

pdcc verify calls make in both of its folders. A make of our own stands in front of it in the PATH: where the folder is that of
the distributed program, it plants the fault and calls the real one. The program of one device is never touched."""
import os, re, shutil, stat, subprocess

MLP, DROP = 'mlp/train_loss', 'mlp_dropout/train_dropout'
TWO = ['--plan', '1-1', '--reproducible']
PAIR = ['--plan', '2']
SERVED = [*PAIR, '--comm', 'ps', '--reproducible']
CLIPPED = [*PAIR, '--reproducible', '--clip-norm', '0.1', '--optimizer', 'adam']
DROPPED = [*TWO, '--dropout', 'as_exported']
AGAIN = [*DROPPED, '--recompute', 'stage', '--schedule', 'gpipe']
RELU = 'relu_512(k->m_l_0_Gemm_output_0, k->m_l_0_Gemm_output_0);'

# name: model, flags, [(file, text, what takes its place)], what is said
FAULTS = {
    'forward kernel': (MLP, TWO, [('stage0/stage0.c', RELU, RELU + ' k->m_l_0_Gemm_output_0[17] += 1;')],
                       r"'/m/Relu_output_0' of microbatch 0 differs first: element 17 is .*; 1 of 512 differ.*; "
                       r"node #2 '/m/Relu' Relu, made by F0 on device 0 \(stage 0\)"),
    'one microbatch': (MLP, TWO, [('stage0/stage0.c', RELU, RELU + ' if (mb == 2) k->m_l_0_Gemm_output_0[511] += 1;')],
                       r"'/m/Relu_output_0' of microbatch 2 differs first: element 511 is .*; 1 of 512 .*'/m/Relu' Relu, made by F2 on device 0"),
    'message forward': (MLP, TWO, [('stage1/stage1.c', 'pd_wait_recv(0, entry);', 'pd_wait_recv(0, entry); e->m_Relu_output_0[3] += 1;')],
                        r"'/m/Relu_output_0' of microbatch 0 differs first: element 3 is .*; 1 of 512 .*'/m/Relu' Relu, received by F0 on device 1 \(stage 1\)"),
    'loss': (MLP, TWO, [('stage1/stage1.c', 'pd_report(mb, loss[0], count[0]);', 'pd_report(mb, loss[0] + (mb == 1), count[0]);')],
             r"the loss of microbatch 1 differs first: element 0 is .*; 1 of 2 .*SoftmaxCrossEntropyLoss, made by F1 on device 1 \(stage 1\)"),
    'backward kernel': (MLP, TWO, [('stage1/stage1.c', 'relugrad_256(', 'd_m_Relu_1_output_0[9] *= 1.5f; relugrad_256(')],
                        r"'d./m/Relu_output_0' of microbatch 0 differs first: .*'/m/l.1/Gemm' Gemm, made by B0 on device 1 \(stage 1\)"),
    'message backward': (MLP, TWO, [('stage0/stage0.c', 'pd_wait_recv(1, slot);', 'pd_wait_recv(1, slot); k->d_m_Relu_output_0[100] += 1e-3f;')],
                         r"'d./m/Relu_output_0' of microbatch 0 differs first: element 100 is .*; 1 of 512 .*'/m/l.1/Gemm' Gemm, received by B0 on device 0"),
    'weight gradient': (MLP, TWO, [('stage0/stage0.c', 'pd_value("d.m.l.0.weight"', 'if (mb == 3) g->m_l_0_weight[5] += 1; pd_value("d.m.l.0.weight"')],
                        r"'d.m.l.0.weight' of microbatch 3 differs first: element 5 is .*; 1 of 100352 .*'/m/l.0/Gemm' Gemm, made by B3 on device 0"),
    'kernel of a sum': (MLP, TWO, [('stage1/kernels.h', 'i < 10; i++) {\n\t\t\t\tconst float s = sum[i], v', 'i < 10 - (j == 3); i++) {\n\t\t\t\tconst float s = sum[i], v')],
                        r"'d.m.l.2.bias' of microbatch 0 differs first: element 9 is .*; 1 of 10 .*'/m/l.2/Gemm' Gemm, made by B0 on device 1"),
    'adding microbatches': (MLP, ['--plan', '1-1'], [('stage1/stage1.c', 'for (int64_t i = 0; i < n; i++)', 'for (int64_t i = 1; i < n; i++)')],
                            r"the gradient of 'm.l.2.bias' differs first: element 0 is .*; 1 of 10 .*'/m/l.2/Gemm' Gemm, added over the microbatches on device 1"),
    'lost gradient': (MLP, TWO, [('stage1/stage1.c', '\tpd_gradient(3, ', '\tfor (int i = 0; i < 10; i++)\n\t\tG->m_l_2_bias[i] = 0;\n\tpd_gradient(3, ')],
                      r"the gradient of 'm.l.2.bias' differs first: [^\0]*'m.l.2.bias' is trained but did not move \[E0804\]"),
    'update kernel': (MLP, TWO, [('stage0/stage0.c', 'pd_gradient(1, G->m_l_0_bias);', 'P->m_l_0_weight[9] += 1e-3f; pd_gradient(1, G->m_l_0_bias);')],
                      r"the updated 'm.l.0.weight' differs first: element 9 is .*; 1 of 100352 .*'/m/l.0/Gemm' Gemm, written by UPDATE on device 0 \(stage 0\)"),
    'one replica': (MLP, [*PAIR, '--reproducible'],
                    [('device1.c', 'static void step(bool train)\n{\n', 'static float *w;\nstatic void step(bool train)\n{\n'),
                     ('device1.c', 'update();', 'update(); w[4] += 1;'), ('device1.c', '\tinit(arena', '\tw = (float *)(void *)arena;\n\tinit(arena')],
                    r"the updated 'm.l.0.weight' differs first: element 4 is .*; 1 of 100352 .*written by UPDATE on device 1 \(stage 0\)"),
    'ring': (MLP, [*PAIR, '--allreduce', 'ring'], [('runtime/allreduce.c', 'add(at, incoming[k % WINDOW], count);',
                                                    'add(at, incoming[k % WINDOW], count - (count > 1));')],
             r"the gradient of 'm.l.0.weight' differs first: element 32767 is .*; 3 of 100352 .*summed by SYNC \(AllReduce\) on device 0"),
    'doubling': (MLP, [*PAIR, '--allreduce', 'doubling'], [('runtime/allreduce.c', 'add(at + x.recv_at, staged, x.recv_n);',
                                                            'add(at + x.recv_at + 7, (float *)(void *)staged + 7, x.recv_n - 7);')],
                 r"the gradient of 'm.l.0.weight' differs first: element 0 is .*; 7 of 100352 .*summed by SYNC \(AllReduce\) on device 0"),
    'tree': (MLP, [*PAIR, '--reproducible'], [('runtime/tree.c', '\tt->nlive = 0;\n\treturn root;', '\tt->nlive = 0;\n\troot[109377] *= 1.5f;\n\treturn root;')],
             r"the gradient of 'm.l.2.bias' differs first: element 1 is .*; 1 of 10 .*'/m/l.2/Gemm' Gemm, summed by SYNC \(AllReduce\) on device 0"),
    'server': (MLP, SERVED, [('runtime/sums.c', '\t\ta[i] += b[i];\n\treturn a;', '\t\ta[i] += b[i];\n\tif (n == 8192)\n\t\ta[11] *= 1.5f;\n\treturn a;')],
               r"the gradient of 'm.l.1.weight' differs first: element 11 is .*; 1 of 8192 .*'/m/l.1/Gemm' Gemm, summed by the server on device 2 \(server 1\)"),
    "server's update": (MLP, SERVED, [('stage1/stage1.c', 'pd_gradient(4, G->m_l_2_weight);', 'P->m_l_1_bias[63] = 0; pd_gradient(4, G->m_l_2_weight);')],
                        r"the updated 'm.l.1.bias' differs first: element 63 is 0, .*; 1 of 64 .*'/m/l.1/Gemm' Gemm, written by UPDATE on device 2 \(server 1\)"),
    'norm': (MLP, CLIPPED, [('runtime/norm.c', 'rt_recv(at, RT_TAG_GATHER, &norm, sizeof norm);', 'rt_recv(at, RT_TAG_GATHER, &norm, sizeof norm);\n\t\tnorm *= 1.1;')],
             r"the norm of the gradient differs first: element 0 is .*joined before UPDATE on device 1 \(stage 0\)"),
    'clip': (MLP, CLIPPED, [('stage0/stage0.c', 'pd_clip(n_2[0], 0.1', 'pd_clip(n_2[0], 0.2')],
             r"the updated 'm.l.0.weight' differs first: .*'/m/l.0/Gemm' Gemm, written by UPDATE on device 0"),
    'dropout': (DROP, DROPPED, [('stage0/stage0.c', 'pd_sample(mb)', '(pd_sample(mb) + (mb == 1))')],
                r"'/dp.0/Dropout_output_0' of microbatch 1 differs first: .*node #\d+ '/dp.0/Dropout' Dropout, made by F1 on device 0 \(stage 0\)"),
    'recompute': (DROP, AGAIN, [('stage0/stage0.c', 're_l_0_Gemm_output_0, pd_sample(mb))', 're_l_0_Gemm_output_0, pd_sample(mb) + 1)')],
                  r"'d.l.0.weight' of microbatch 0 differs first: .*'/l.0/Gemm' Gemm, made by B0 on device 0 \(stage 0\)"),
}
SHARE = ('message forward', 'lost gradient', 'backward kernel', 'tree', 'server', 'clip', 'recompute')     # what CTest takes


def plant(folder, edits):
    for path, old, new in edits:
        path = os.path.join(folder, path)
        with open(path) as f:
            text = f.read()
        if text.count(old) < 1:
            raise SystemExit(f'{path}: nowhere {old!r}')
        with open(path, 'w') as f:
            f.write(text.replace(old, new))


def front(folder, edits):
    """A folder with a make that plants."""
    os.makedirs(folder)
    with open(os.path.join(folder, 'plant.py'), 'w') as f:
        f.write(f'import sys\nsys.path.insert(0, {os.path.dirname(os.path.realpath(__file__))!r})\nimport verifyfaults\n'
                f'verifyfaults.plant(sys.argv[1], {edits!r})\n')
    make = os.path.join(folder, 'make')
    with open(make, 'w') as f:
        f.write('#!/bin/sh\nfor word in "$@"; do\n\tcase $word in\n'
                f'\t*/distributed) /usr/bin/python3 {folder}/plant.py "$word" || exit 1 ;;\n\tesac\ndone\n'
                f'exec {shutil.which("make")} "$@"\n')
    os.chmod(make, os.stat(make).st_mode | stat.S_IXUSR)
    return folder


def check(pdcc, tmp, name, cc):
    """What is wrong with what pdcc verify says of fault `name`; '' where it names it."""
    model, flags, edits, said = FAULTS[name]
    at = os.path.join(tmp, re.sub(r'\W', '-', name))
    env = dict(os.environ, PATH=front(at + '-bin', edits) + ':' + os.environ['PATH'])
    models = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), 'models')
    r = subprocess.run([pdcc, 'verify', f'{models}/{model}.onnx', '--cluster', 'local:2', *flags, '--micro-batch', '4', '--global-batch', '16',
                        '--threads', '1', '--steps', '1', '--opt-level', '1', '--cc', cc, '-q', '-o', at], env=env, cwd=tmp, stdin=subprocess.DEVNULL,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    text = r.stdout.decode(errors='replace')
    shutil.rmtree(at, ignore_errors=True)
    if r.returncode == 4 and re.search(f'step 0: {said}', text):
        return ''
    return f'exit {r.returncode}, wanted 4 and "{said}"\n{text}'
