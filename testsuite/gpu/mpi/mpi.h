/* mpi.h: the part of MPI that the runtime calls, for the processes of one machine that has no MPI (mpi.c). */
#ifndef MPI_H
#define MPI_H

typedef struct pdmpi_comm *MPI_Comm;
typedef struct pdmpi_group *MPI_Group;
typedef struct pdmpi_request *MPI_Request;
typedef struct {
	int MPI_SOURCE, MPI_TAG, MPI_ERROR, count;
} MPI_Status;
typedef enum { MPI_BYTE = 1, MPI_FLOAT = 4 } MPI_Datatype;
typedef enum { MPI_SUM } MPI_Op;
typedef enum { MPI_ERRORS_RETURN } MPI_Errhandler;

enum { MPI_SUCCESS, MPI_ERR_TRUNCATE, MPI_ERR_OTHER, MPI_ERR_PENDING, MPI_ERR_IN_STATUS };
enum { MPI_MAX_ERROR_STRING = 256, MPI_THREAD_SERIALIZED = 2, MPI_TAG_UB = 1 };

extern MPI_Comm pdmpi_world;
#define MPI_COMM_WORLD pdmpi_world
#define MPI_REQUEST_NULL ((MPI_Request)0)
#define MPI_IN_PLACE ((void *)-1)

int MPI_Init_thread(int *argc, char ***argv, int wanted, int *provided);
int MPI_Initialized(int *flag);
int MPI_Finalize(void);
int MPI_Finalized(int *flag);
int MPI_Abort(MPI_Comm c, int code);
int MPI_Error_string(int code, char *text, int *n);
int MPI_Error_class(int code, int *class);

int MPI_Comm_set_errhandler(MPI_Comm c, MPI_Errhandler h);
int MPI_Comm_rank(MPI_Comm c, int *rank);
int MPI_Comm_size(MPI_Comm c, int *size);
int MPI_Comm_dup(MPI_Comm c, MPI_Comm *copy);
int MPI_Comm_split(MPI_Comm c, int color, int key, MPI_Comm *part);
int MPI_Comm_get_attr(MPI_Comm c, int key, void *value, int *flag);
int MPI_Comm_group(MPI_Comm c, MPI_Group *g);
int MPI_Group_incl(MPI_Group g, int n, const int *ranks, MPI_Group *part);
int MPI_Group_free(MPI_Group *g);
int MPI_Comm_create_group(MPI_Comm c, MPI_Group g, int tag, MPI_Comm *made);

int MPI_Isend(const void *buf, int n, MPI_Datatype t, int peer, int tag, MPI_Comm c, MPI_Request *r);
int MPI_Irecv(void *buf, int n, MPI_Datatype t, int peer, int tag, MPI_Comm c, MPI_Request *r);
int MPI_Testsome(int n, MPI_Request *r, int *done, int *index, MPI_Status *status);
int MPI_Get_count(const MPI_Status *s, MPI_Datatype t, int *n);
int MPI_Allgather(const void *mine, int n, MPI_Datatype t, void *all, int nall, MPI_Datatype tall, MPI_Comm c);
int MPI_Iallgather(
	const void *mine, int n, MPI_Datatype t, void *all, int nall, MPI_Datatype tall, MPI_Comm c, MPI_Request *r);
int MPI_Iallreduce(const void *in, void *out, int n, MPI_Datatype t, MPI_Op op, MPI_Comm c, MPI_Request *r);

#endif
