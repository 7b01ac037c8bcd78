/* gpu_names.h: included in front of the runtime's host files where they are built for a GPU program. What takes tensors
 * has another name there, and gpu_host.c calls it with tensors in host memory. */
#ifndef GPU_NAMES_H
#define GPU_NAMES_H

#define RT_GPU 1

#define pd_irecv host_irecv
#define pd_isend host_isend
#define pd_wait_recv host_wait_recv
#define pd_wait_send host_wait_send
#define pd_input host_input
#define pd_allreduce host_allreduce
#define pd_allreduce_as host_allreduce_as
#define pd_allreduce_start host_allreduce_start
#define pd_allreduce_wait host_allreduce_wait
#define pd_allreduce_f64 host_allreduce_f64
#define pd_scatter_start host_scatter_start
#define pd_scatter_add host_scatter_add
#define pd_gather_parts host_gather_parts
#define pd_gather_start host_gather_start
#define pd_gradients_whole host_gradients_whole
#define pd_allgather host_allgather
#define pd_broadcast host_broadcast
#define pd_tree_bytes host_tree_bytes
#define pd_tree_new host_tree_new
#define pd_tree_leaf host_tree_leaf
#define pd_tree_done host_tree_done
#define pd_tree_root host_tree_root
#define pd_tree_join host_tree_join
#define pd_held_open host_held_open
#define pd_pull host_pull
#define pd_pull_rows host_pull_rows
#define pd_push host_push
#define pd_push_tree host_push_tree
#define pd_shares_open host_shares_open
#define pd_serve host_serve
#define pd_serve_each host_serve_each
#define pd_collect host_collect
#define pd_collect_rows host_collect_rows
#define pd_give host_give
#define pd_fetch host_fetch
#define pd_return host_return
#define pd_take host_take
#define pd_gatherv_new host_gatherv_new
#define pd_gatherv_join host_gatherv_join
#define pd_gradient host_gradient
#define pd_gradient_part host_gradient_part
#define pd_gradient_rows host_gradient_rows
#define pd_check host_check
#define pd_tensor_sum host_tensor_sum
#define pd_tensor_gather host_tensor_gather
#define pd_tensor_scatter host_tensor_scatter
#define pd_tensor_shard host_tensor_shard
#define pd_tag_write host_tag_write
#define pd_tag_read host_tag_read
#define pd_count_join host_count_join
#define pd_sums_wait host_sums_wait

#endif
