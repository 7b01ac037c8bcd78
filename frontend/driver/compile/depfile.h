/* Make rules of what a build was made from. */
#ifndef PDCC_FRONTEND_DEPFILE_H
#define PDCC_FRONTEND_DEPFILE_H

#include "compile.h"

/* --depfile, or DIR/inputs.d: "DIR/manifest.json: model.onnx cluster.yaml ...". False after E0008. */
bool depfile_write(Compile *c, const char *dir);

#endif
