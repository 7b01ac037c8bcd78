/* standin.h: what the stand-in's files share. */
#ifndef STANDIN_H
#define STANDIN_H

#include <cuda_runtime_api.h>
#include <stdint.h>
#include "order.h"

#define API __attribute__((visibility("default")))

API void standin_device(int enters);     /* around everything that touches device memory */
cudaError_t standin_said(cudaError_t e); /* what cudaGetLastError tells next, unless it is no error */
int standin_forbidden(void);             /* this thread captures a stream: the call is refused, and so is the graph */
/* What an operation reads or writes: ends the program where AddressSanitizer has closed a part, and is held against other operations. */
void standin_touch(const char *who, order_use use, const void *p, size_t bytes);
void standin_touch_rows(const char *who, order_use use, const void *at, int narrow, int rows, int n, int64_t ld);
int standin_piece(const void *p, const void **start, size_t *bytes); /* of device memory, that p is in; -1: none */
void standin_frees(const char *call); /* waits for all streams; ends the program as standin_asks does */
void standin_asks(
	const char *call);  /* what may wait for the device: ends the program while another process may be waited for */
void standin_joined(int n); /* so many communicators more */
int standin_full(const char *what);              /* STANDIN_FULL says that there is no memory for this library */
int standin_pinned(const void *p, size_t bytes); /* these bytes of the host's memory are */
void standin_behind(double seconds);             /* for so long nothing that the host asks for has passed */
int standin_within(const void *p, size_t bytes); /* all of them lie in one piece of device memory */
int standin_uuid(char uuid[16]);                 /* of this thread's device; its number */

/* standin_stream.c. What a stream is to do, as a function and a copy of what it works on: at once on the stream that computes (NULL
 * means it too), else when somebody waits for it; while the stream is captured it goes into the graph. */
typedef enum standin_end { STANDIN_WAITS, STANDIN_DONE, STANDIN_LOST } standin_end; /* LOST: it will never be done */
typedef standin_end standin_run(void *what);
/* In place of NULL for a library or copy that was given no stream: CUDA's default one, which waits for no other stream here. */
cudaStream_t standin_stream(cudaStream_t s);
API void standin_do(cudaStream_t s, standin_run *run, const void *what, size_t bytes);
/* The same of what other processes take part in: tried at once, and again whenever this one waits for something. */
void standin_meet(cudaStream_t s, standin_run *run, void *what);
void standin_progress(void);
void standin_takes(double us); /* the device, by its clock; 10,000 and more by every clock */

/* standin_times.c: algorithms of products, by epilogue and number */
int standin_algorithms(unsigned end);
double standin_time(unsigned end, int algorithm);
int standin_refused(int algorithm, int runs);
void standin_product(unsigned end, int algorithm, int m, int n, int k); /* one was run */

#endif
