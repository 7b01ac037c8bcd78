"""Faults planted into the distributed program of pdcc verify, which must name the tensor that each makes wrong first.

pdcc verify calls make in both of its folders. A make of our own stands in front of it in the PATH: where the folder is that of
the distributed program, it plants the fault and calls the real one. The program of one device is never touched."""
import os, re, shutil, stat, subprocess

MLP, DROP = 'mlp/train_loss', 'mlp_dropout/train_dropout'
TWO = ['--plan', '1-1', '--reproducible']
PAIR = ['--plan', '2']
HALVES = [*PAIR, '--amp', 'bf16', '--optimizer', 'adamw', '--steps', '3']
SERVED = [*PAIR, '--comm', 'ps', '--reproducible']
CLIPPED = [*PAIR, '--reproducible', '--clip-norm', '0.1', '--optimizer', 'adam']
DROPPED = [*TWO, '--dropout', 'as_exported']
AGAIN = [*DROPPED, '--recompute', 'stage', '--schedule', 'gpipe']
LENET, RESNET, TEXT, WORDS, UNET = (f'{m}/train_loss' for m in ('lenet', 'resnet18', 'gpt2_mini', 'lm_sampled', 'unet'))
LONG = [*TWO, '--dim', 'ids:1=16', '--dim', 'labels:1=16']
SHARED = ['--plan', '1x2']
ZERO = [*PAIR, '--zero', '1', '--optimizer', 'adam']
# asynchronous: every step is compared
PIPE = ['--cluster', 'local:3', '--plan', '1-1-1', '--schedule', 'pipedream', '--global-batch', '4', '--steps', '5', '--reproducible']
TURNS = ['--cluster', 'local:3', '--plan', '2-1', '--schedule', 'pipedream', '--global-batch', '4', '--steps', '7', '--reproducible']
DOUBLE = ['--plan', '1-1', '--schedule', '2bw', '--global-batch', '8', '--steps', '4', '--reproducible']
LATER = [*PAIR, '--pipe-sgd', '2', '--global-batch', '8', '--steps', '4', '--reproducible']
APART = [*PAIR, '--comm', 'ps', '--sync', 'async', '--steps', '3']
UPDATE = '\t\t\tupdate(COPY(step));'
SECOND = '{ extern int rt_member; if (rt_member == 1%s) %s; } '      # what the second member of a tensor group does
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
    # tolerances of 16 bits are wider, and AdamW's steps may go either way where a gradient is roundings
    'one replica in 16 bits': (MLP, HALVES,
                               [('device1.c', 'static void step(bool train)\n{\n', 'static float *w;\nstatic void step(bool train)\n{\n'),
                                ('device1.c', 'update();', 'update(); w[4] += 0.05f;'), ('device1.c', '\tinit(arena', '\tw = (float *)(void *)arena;\n\tinit(arena')],
                               r"the updated 'm.l.0.weight' differs first: element 4 is .*; 1 of 100352 .*written by UPDATE on device 1 \(stage 0\)"),
    'a later step in 16 bits': (MLP, HALVES,
                                [('stage0/stage0.c', 'pd_gradient(0, ', 'static int step;\n\tif (step++ == 1)\n\t\tP->m_l_1_weight[9] += 0.1f;\n\tpd_gradient(0, ')],
                                r"tensor 'm.l.1.weight' differs first: by 0.\d*, its largest value"),
    # and those of what 16 bits make of a gradient, and of a sum that travels packed
    'sum of a tensor group in 16 bits': (LENET, [*SHARED, '--amp', 'bf16'],
                                         [('runtime/tensor.c', 'add(first, k == rt_member ? y : with[k].recv, count, f64);', 'add(first, k == rt_member ? y : with[k].recv, count - 1, f64);')],
                                         r"'d.m.f3.bias' of microbatch 0 differs first: .*'/m/f3/Gemm' Gemm, made by B0 on device 0 \(stage 0\)"),
    'gradient of a member in 16 bits': (LENET, [*SHARED, '--amp', 'bf16'],
                                        [('stage0/stage0.c', 'pd_value("d.m.f3.bias"', 'if (mb == 2) d_m_f3_bias[3] *= 1.2f; pd_value("d.m.f3.bias"')],
                                        r"'d.m.f3.bias' of microbatch 2 differs first: element 3 is .*; 1 of 10 .*'/m/f3/Gemm' Gemm, made by B2 on device 0 \(stage 0\)"),
    'scale of a packed sum': (MLP, [*PAIR, '--compress', 'q8'], [('runtime/compress.c', 'step * (float)q[i]', '1.05f * step * (float)q[i]')],
                              r"the gradient of 'm.l.2.bias' differs first: element \d is .*'/m/l.2/Gemm' Gemm, summed by SYNC \(AllReduce\) on device 0 \(stage 0\)"),
    'bits of a packed sum': (MLP, [*PAIR, '--compress', 'bf16'], [('runtime/compress.c', ': up >> 16);', ': (up >> 16) & 0xFFF0);')],
                             r"the gradient of 'm.l.2.bias' differs first: element \d is .*'/m/l.2/Gemm' Gemm, summed by SYNC \(AllReduce\) on device 0 \(stage 0\)"),
    'ring': (MLP, [*PAIR, '--allreduce', 'ring'], [('runtime/allreduce.c', 'add(at, incoming[k % WINDOW], count);',
                                                    'add(at, incoming[k % WINDOW], count - (count > 1));'),
                                                   ('runtime/allreduce.c', 'rt_shared(j->group->rank[(self + n - 1) % n]);', '0; /* not as it arrives */')],
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
    'recompute': (DROP, AGAIN, [('stage0/stage0.c', 're_l_0_Gemm_output_0, pd_sample(mb),', 're_l_0_Gemm_output_0, pd_sample(mb) + 1,')],
                  r"'d.l.0.weight' of microbatch 0 differs first: .*'/l.0/Gemm' Gemm, made by B0 on device 0 \(stage 0\)"),
    # ---- other models, plans of tensor groups, divided optimizer state, servers of rows ----
    'gradient of a convolution': (LENET, TWO,
                                 [('stage0/stage0.c', 'pd_value("d.m.c1.weight"', 'if (mb == 1) g->m_c1_weight[149] *= 1.5f; pd_value("d.m.c1.weight"')],
                                 r"'d.m.c1.weight' of microbatch 1 differs first: element 149 is .*; 1 of 150 .*'/m/c1/Conv' Conv, made by B1 on device 0 \(stage 0\)"),
    'running mean': (RESNET, TWO,
                    [('stage0/stage0.c', '\tmemcpy(R->m_bn1_running_var_rows', '\tR->m_bn1_running_mean_rows[mb * 8 + 2] += 1e-3f;\n\tmemcpy(R->m_bn1_running_var_rows')],
                    r"the updated 'm.bn1.running_mean' differs first: element 2 is .*; 1 of 8 .*written by UPDATE on device 0 \(stage 0\)"),
    'variance kept for the backward': (RESNET, TWO,
                                      [('stage0/stage0.c', '\trelu_18432(k->', '\tk->m_bn1_BatchNormalization_output_0_2[5] *= 1.5f;\n\trelu_18432(k->')],
                                      r"'d.m.bn1.weight' of microbatch 0 differs first: element 5 is .*; 1 of 8 .*'/m/bn1/BatchNormalization' BatchNormalization, made by B0 on device 0"),
    'attention': (TEXT, LONG,
                 [('stage0/stage0.c', 'k->m_h_0_Split_output_0, k->m_h_0_Split_output_1, k->m_h_0_Split_output_2);', 'k->m_h_0_Split_output_0, k->m_h_0_Split_output_1, k->m_h_0_Split_output_2); k->m_h_0_Reshape_3_output_0[50] += 1;')],
                 r"'/m/h.0/Add_3_output_0' of microbatch 0 differs first: element 48 is .*; 48 of 3072 .*'/m/h.0/Add_3' Add, made by F0 on device 0"),
    'embedding': (TEXT, LONG,
                 [('stage0/stage0.c', 'pd_value("d.m.wte.weight.1"', 'if (mb == 3) g->m_wte_weight_1[337] += 1e-2f; pd_value("d.m.wte.weight.1"')],
                 r"'d.m.wte.weight.1' of microbatch 3 differs first: element 337 is .*; 1 of 12288 .*'/m/wte/Gather' Gather, made by B3 on device 0"),
    'layer normalisation': (TEXT, LONG,
                           [('stage0/kernels.h', '\t\t\tdbias[i] += d[i];', '\t\t\tdbias[i] += r == 5 && i == 47 ? 0 : d[i];')],
                           r"'d.m.h.1.ln_1.bias' of microbatch 0 differs first: element 47 is .*; 1 of 48 .*'/m/h.1/ln_1/Add_1' Add, made by B0 on device 0"),
    'sum of a tensor group': (LENET, SHARED,
                             [('runtime/tensor.c', 'add(first, k == rt_member ? y : with[k].recv, count, f64);', 'add(first, k == rt_member ? y : with[k].recv, count - 1, f64);')],
                             r"the loss of microbatch 0 differs first: .*SoftmaxCrossEntropyLoss, made by F0 on device 0 \(stage 0\)"),
    'gradient of a member': (LENET, SHARED,
                            [('stage0/stage0.c', 'pd_value("d.m.c1.weight.mine"', SECOND % (' && mb == 2', 'd_m_c1_weight_mine[74] += 1') + 'pd_value("d.m.c1.weight.mine"')],
                            r"the gradient of 'm.c1.weight' differs first: element 149 is .*; 1 of 150 .*'/m/c1/Conv' Conv, added over the microbatches on device 0"),
    'gradient of a member by columns': (LENET, SHARED,
                                       [('stage0/stage0.c', 'pd_value("d.m.f1.weight.mine"', SECOND % ('', 'd_m_f1_weight_mine[205] += 1') + 'pd_value("d.m.f1.weight.mine"')],
                                       r"the gradient of 'm.f1.weight' differs first: element 605 is .*; 1 of 48000 .*'/m/f1/Gemm' Gemm, added over the microbatches on device 0"),
    'loss of the second member': (LENET, SHARED,
                                 [('stage0/stage0.c', 'pd_report(mb, loss[0], count[0]);', SECOND % (' && mb == 2', 'loss[0] += 1') + 'pd_report(mb, loss[0], count[0]);')],
                                 r"the loss of microbatch 2 differs first: element 0 is .*; 1 of 2 .*SoftmaxCrossEntropyLoss, made by F2 on device 1 \(stage 0\)"),
    'update of a member': (LENET, SHARED,
                          [('stage0/stage0.c', 'pd_gradient(1, G->m_c1_bias);', SECOND % ('', 'P->m_c1_weight[3] += 1') + 'pd_gradient(1, G->m_c1_bias);')],
                          r"the updated 'm.c1.weight' differs first: element 78 is .*; 1 of 150 .*'/m/c1/Conv' Conv, written by UPDATE on device 0"),
    'one element of a part': (LENET, ZERO,
                             [('stage0/stage0.c', '(int)pd_part_of(replica, 1200, 2400));', '(int)pd_part_of(replica, 1200, 2400) - replica);')],
                             r"the updated 'm.c2.weight' differs first: element 2399 is .*; 1 of 2400 .*'/m/c2/Conv' Conv, written by UPDATE on device 0"),
    'parts that are not told': (LENET, ZERO,
                               [('stage0/stage0.c', 'pd_gather_parts(&replicas, P, weight_parts, 10,', 'pd_gather_parts(&replicas, P, weight_parts, 9,')],
                               r"the updated 'm.f3.bias' differs first: element 0 is .*; 10 of 10 .*'/m/f3/Gemm' Gemm, written by UPDATE on device 1 \(stage 0\)"),
    'parts that are not added': (LENET, ZERO,
                                [('stage0/stage0.c', 'pd_scatter_start(&replicas, (float *)G, gradient_parts1, 5)', 'pd_scatter_start(&replicas, (float *)G, gradient_parts1, 4)')],
                                r"the gradient of 'm.c1.bias' differs first: element 0 is .*; 6 of 6 .*'/m/c1/Conv' Conv, summed by SYNC \(AllReduce\) on device 0"),
    'rows that are pushed': (WORDS, [*PAIR, '--comm', 'hybrid'],
                            [('stage0/stage0.c', 'pd_value("d.m.out.weight.1"', 'd_m_out_weight_1[32 * k->neg[0] + 3] += 1; pd_value("d.m.out.weight.1"')],
                            r"the gradient of 'm.out.weight' differs first: element \d+ is .*; 4 of 25600 .*'/m/out_1/Gather' Gather, summed by the server on device 2 \(server 1\)"),
    'rows that the server adds': (WORDS, [*PAIR, '--comm', 'hybrid'],
                                 [('runtime/sums.c', '\t\ta[i] += b[i];\n\treturn a;', '\t\ta[i] += b[i];\n\tstatic bool once;\n\tif (n == 32 && !once)\n\t\ta[11] += once = true;\n\treturn a;')],
                                 r"the gradient of 'm.out.weight' differs first: element \d+ is .*; 1 of 25600 .*'/m/out_1/Gather' Gather, summed by the server on device 2 \(server 1\)"),
    # images may lie channels-last there: 7 is 448 of the plain order, 1 is 9
    'a skip over stages': (UNET, ['--cluster', 'local:3', '--plan', '1-1-1', '--reproducible'],
                          [('stage0/stage0.c', 'pd_wait_recv(4, slot); ', 'pd_wait_recv(4, slot); k->d_m_Relu_1_output_0_2[7] += 1;')],
                          r"'d./m/Relu_1_output_0.2' of microbatch 0 differs first: element (7|448) is .*; 1 of 4096 .*'/m/Relu_1' Relu, received by B0 on device 0 \(stage 0\)"),
    'second chunk of a device': (RESNET, ['--plan', '1-1-1-1', '--schedule', 'zbv', '--reproducible'],
                                [('stage2/stage2.c', 'pd_wait_recv(7, slot);', 'pd_wait_recv(7, slot); if (mb == 1) k->d_m_layer3_layer3_1_Relu_1_output_0_2[1] += 1;')],
                                r"'d./m/layer3/layer3.1/Relu_1_output_0.2' of microbatch 1 differs first: element (1|9) is .*; 1 of 1152 .*'/m/layer3/layer3.1/Relu_1' Relu, received by I1 on device 1 \(stage 2\)"),
    'weight gradients later': (RESNET, ['--plan', '1-1-1-1', '--schedule', 'zbv', '--reproducible'],
                              [('stage0/stage0.c', 'pd_value("d.m.conv1.weight"', 'if (mb == 3) g->m_conv1_weight[0] += 1; pd_value("d.m.conv1.weight"')],
                              r"'d.m.conv1.weight' of microbatch 3 differs first: element 0 is .*; 1 of 1176 .*'/m/conv1/Conv' Conv, made by W3 on device 0 \(stage 0\)"),
    'a slice': (TEXT, ['--cluster', 'local:3', '--plan', '1-2', '--replica-split', 'slice', '--reproducible', *LONG[3:]],
               [('stage1/stage1.c', 'pd_wait_recv(0, entry); ', 'pd_wait_recv(0, entry); e->m_h_0_Add_output_0[100] += mb == 1;')],
               r"'/m/h.0/Add_output_0' of microbatch 1 differs first: element 100 is .*; 1 of 1536 .*'/m/h.0/Add' Add, received by F1 on device 2 \(stage 1\)"),
    'halving': (MLP, [*PAIR, '--allreduce', 'halving'],
               [('runtime/allreduce.c', 'add(at + x.recv_at, staged, x.recv_n);', 'add(at + x.recv_at, staged, x.recv_n - (x.recv_n > 1));')],
               r"the gradient of 'm.l.0.weight' differs first: element 54695 is .*; 1 of 100352 .*summed by SYNC \(AllReduce\) on device 0"),
    'state of the optimizer': (MLP, [*PAIR, '--reproducible', '--optimizer', 'momentum', '--steps', '3'],
                              [('stage0/stage0.c', 'pd_gradient(1, G->m_l_0_bias);', 'S->m_l_0_weight_mom[9] += 1; pd_gradient(1, G->m_l_0_bias);')],
                              r"the updated 'm.l.0.weight:mom' differs first: element 9 is .*; 1 of 100352 .*written by UPDATE on device 0 \(stage 0\)"),
    'weights of a microbatch ago': (MLP, ['--plan', '1-1', '--schedule', 'mp', '--global-batch', '4', '--steps', '4'],
                                   [('stage1/stage1.c', 'pd_gradient(3, ', 'P->m_l_2_bias[3] += 1e-2f; pd_gradient(3, ')],
                                   r"update 0: the updated 'm.l.2.bias' differs first: element 3 is .*; 1 of 10 .*'/m/l.2/Gemm' Gemm, written by UPDATE on device 1 \(stage 1\)"),
    # ---- asynchronous schedules ----
    'version that a forward reads': (MLP, PIPE, [('stage1/stage1.c', '&V[meet(slot) % VERSIONS]', '&V[(meet(slot) + (newest > 1)) % VERSIONS]')],
                                    r"step 3: '/m/Relu_1_output_0' of microbatch 0 differs first: .*'/m/Relu_1' Relu, made by F0 on device 1 \(stage 1\)\W"),
    'version that a stage says it reads': (MLP, PIPE, [('stage1/stage1.c', 'met[slot] = newest;', 'met[slot] = newest > 1 ? newest - 1 : newest;')],
                                          r"step 3: '/m/Relu_1_output_0' of microbatch 0 differs first: .*made by F0 on device 1 \(stage 1\), "
                                          r"which reads version 1 of its weights, by pipedream version 2"),
    'backward without its stash': (MLP, PIPE, [('stage1/stage1.c', '&V[met[slot] % VERSIONS]', '&V[newest % VERSIONS]')],
                                  r"step 1: 'd./m/Relu_output_0' of microbatch 0 differs first: .*'/m/l.1/Gemm' Gemm, made by B0 on device 1 \(stage 1\)"),
    'stash of too few versions': (MLP, PIPE, [('stage1/stage1.c', 'VERSIONS = 2', 'VERSIONS = 1')],
                                 r"step 1: 'd./m/Relu_output_0' of microbatch 0 differs first: .*'/m/l.1/Gemm' Gemm, made by B0 on device 1 \(stage 1\)"),
    'update applied twice': (MLP, PIPE, [('device0.c', UPDATE, UPDATE + '\n\t\t\tif (step == 2)\n\t\t\t\tupdate(COPY(step));')],
                            r"update 2: the updated 'm.l.0.weight' differs first: .*'/m/l.0/Gemm' Gemm, written by UPDATE on device 0 \(stage 0\)"),
    'update left out': (MLP, PIPE, [('device2.c', UPDATE, '\t\t\tif (step != 1)\n\t' + UPDATE)],
                       r"update 1: the gradient of 'm.l.2.bias' is missing, and that of update 2 is there, added over the microbatches on device 2 \(stage 2\)"),
    'update a minibatch late': (MLP, PIPE, [('device1.c', 'static void step(', 'static bool owed;\nstatic void step('), ('device1.c', UPDATE, '\t\t\towed = true;'),
                                           ('device1.c', '\t\t\tforward(slot, entry, mb);\n', '\t\t\tforward(slot, entry, mb);\n\t\t\tif (owed) {\n\t\t\t\tpd_update_of(2, EVERY);\n'
                                                                                        '\t\t\t\tupdate(0);\n\t\t\t\towed = false;\n\t\t\t}\n')],
                               r"step 2: '/m/Relu_1_output_0' of microbatch 0 differs first: .*made by F0 on device 1 \(stage 1\), "
                               r"which reads version 0 of its weights, by pipedream version 1"),
    'gradient of a later minibatch': (MLP, PIPE, [('stage0/stage0.c', 'pd_value("d.m.l.0.bias"', 'if (pd_flow() == 5) g->m_l_0_bias[9] += 1; pd_value("d.m.l.0.bias"')],
                                     r"step 3: 'd.m.l.0.bias' of microbatch 0 differs first: element 9 is .*; 1 of 128 .*'/m/l.0/Gemm' Gemm, made by B0 on device 0 \(stage 0\)"),
    'message of a later minibatch': (MLP, PIPE, [('stage2/stage2.c', 'pd_wait_recv(1, entry);', 'pd_wait_recv(1, entry); if (pd_flow() == 3) e->m_Relu_1_output_0[5] += 1;')],
                                    r"step 3: '/m/Relu_1_output_0' of microbatch 0 differs first: element 5 is .*; 1 of 256 .*received by F0 on device 2 \(stage 2\)"),
    'replica that forgets a round': (MLP, TURNS, [('stage0/stage0.c', '\tpd_gradient(1, ', '\tif (newest == 2)\n\t\tG->m_l_0_bias[7] = 0;\n\tpd_gradient(1, ')],
                                    r"update 1: the gradient of 'm.l.0.bias' differs first: element 7 is 0, .*; 1 of 128 .*summed by SYNC \(AllReduce\) on device 0 \(stage 0\)"),
    'versions of 2BW': (MLP, DOUBLE, [('stage0/stage0.c', '&V[meet(slot) % VERSIONS]', '&V[(meet(slot) + (pd_flow() == 2)) % VERSIONS]')],
                       r"step 2: '/m/Relu_output_0' of microbatch 0 differs first: .*'/m/Relu' Relu, made by F0 on device 0 \(stage 0\)\W"),
    'delay of 2BW': (MLP, DOUBLE, [('stage1/stage1.c', 'pd_flow() ? pd_flow() - 1 : 0', 'pd_flow() > 1 ? pd_flow() - 2 : 0')],
                    r"step 2: the loss of microbatch 0 differs first: .*made by F0 on device 1 \(stage 1\), which reads version 0 of its weights, by 2bw version 1"),
    'gradient applied a step early': (MLP, LATER, [(f'device{i}.c', f'{{ UPDATE, {i}, 0, 1, 0 }}', f'{{ UPDATE, {i}, 0, 0, 0 }}') for i in (0, 1)],
                                     r"step 1: the loss of microbatch 0 differs first: .*made by F0 on device 0 \(stage 0\), which reads version 1 of its weights, by pipe-sgd version 0"),
    'gradient that a server counts twice': (MLP, APART, [('runtime/serve.c', '\tupdate((int)(s - shares));', '\tupdate((int)(s - shares));\n\tif (of[s->members] == 3)\n\t\tupdate((int)(s - shares));')],
                                           r"update 2: the updated 'm.l.0.weight' differs first: .*'/m/l.0/Gemm' Gemm, written by UPDATE on device 2 \(server 1\)"),
    'push that arrives twice': (MLP, APART, [('runtime/serve.c', 'note("push", s, rank, 0);', 'note("push", s, rank, 0);\n\tif (!strcmp(s->name, "m.l.1.bias"))\n\t\tnote("push", s, rank, 0);')],
                               r"step 0: push of 'm.l.1.bias' by device \d, version 1: its gradient is update 1 already"),
    'update that a server leaves out': (MLP, APART, [('runtime/serve.c', '\tupdate((int)(s - shares));', '\tif (of[s->members] != 3)\n\t\tupdate((int)(s - shares));')],
                                       r"update 2: the gradient of 'm.l.2.bias' is missing, and that of update 3 is there, summed by the server on device 2 \(server 1\)"),
    'gradient that a device pushes': (MLP, APART, [('stage0/stage0.c', 'pd_value("d.m.l.2.bias"', 'if (mb == 3) d_m_l_2_bias[5] += 1; pd_value("d.m.l.2.bias"')],
                                     r"step 0: 'd.m.l.2.bias' of microbatch 3 differs first: element 5 is .*; 1 of 10 .*'/m/l.2/Gemm' Gemm, made by B3 on device 1 \(stage 0\)"),
    'labels that a server counts': (MLP, APART, [('runtime/serve.c', 'rt_flow_update((double)h->count,', 'rt_flow_update((double)h->count + 1,')],
                                   r"update 0: the updated 'm.l.0.weight' differs first: .*'/m/l.0/Gemm' Gemm, written by UPDATE on device 2 \(server 1\)"),
}
SHARE = ('message forward', 'lost gradient', 'backward kernel', 'tree', 'server', 'clip', 'recompute', 'loss of the second member',
         'one element of a part', 'a later step in 16 bits', 'scale of a packed sum', 'version that a stage says it reads', 'versions of 2BW', 'gradient that a server counts twice')     # what CTest takes


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
    r = subprocess.run([pdcc, 'verify', f'{models}/{model}.onnx', '--cluster', 'local:2', '--micro-batch', '4', '--global-batch', '16',
                        '--threads', '1', '--steps', '1', '--opt-level', '1', '--cc', cc, '-q', '-o', at, *flags], env=env, cwd=tmp, stdin=subprocess.DEVNULL,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
    text = r.stdout.decode(errors='replace')
    shutil.rmtree(at, ignore_errors=True)
    if r.returncode == 4 and re.search(said if re.match('step|update|tensor', said) else f'step 0: {said}', text):
        return ''
    return f'exit {r.returncode}, wanted 4 and "{said}"\n{text}'
