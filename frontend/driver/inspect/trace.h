/* pdcc trace: what the devices of a run did when. */
#ifndef PDCC_FRONTEND_TRACE_H
#define PDCC_FRONTEND_TRACE_H

/* argv holds what follows the subcommand. Returns the exit status. */
int trace_main(int argc, char **argv);

#endif
