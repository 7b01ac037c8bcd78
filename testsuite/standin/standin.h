/* standin.h: what the stand-in's files share. */
#ifndef STANDIN_H
#define STANDIN_H

#define API __attribute__((visibility("default")))

API void standin_device(int enters);    /* around everything that touches device memory */

#endif
