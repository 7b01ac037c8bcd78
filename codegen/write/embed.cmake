# Makes a C file that holds other files as text: cmake -DOUT=embedded.c -DROOT=DIR -P embed.cmake
# Names are relative to the source tree, templates of ops without the leading ir/, files of the runtime without their room,
# as they lie in a build folder; sorted by name.
file(GLOB list RELATIVE ${ROOT} ${ROOT}/ir/ops/*/*.cpu.c ${ROOT}/ir/ops/*/*.ref.c ${ROOT}/ir/ops/*/*.cuda.cu
	${ROOT}/ir/ops/*/*.part.h
	${ROOT}/runtime/*.[ch] ${ROOT}/runtime/*/*.[ch] ${ROOT}/runtime/gpu/*.cu ${ROOT}/docs/runtime.md
	${ROOT}/codegen/frames/*.in ${ROOT}/frontend/settings/*.schema.json)
set(rows)
foreach(path IN LISTS list)
	string(REGEX REPLACE "^ir/" "" name "${path}")
	string(REGEX REPLACE "^runtime/(comm|cpu|crossing|data|faults|gpu|run|servers|state|timing)/" "runtime/" name "${name}")
	string(REPLACE "docs/runtime.md" "runtime/README.md" name "${name}")
	list(APPEND rows "${name} ${path}")
endforeach()
list(SORT rows)
set(c "/* Written by the build (codegen/write/embed.cmake). */\n#include \"codegen/write/tmpl.h\"\n\nconst Embedded embedded[] = {\n")
foreach(row IN LISTS rows)
	string(REGEX REPLACE " .*" "" name "${row}")
	string(REGEX REPLACE ".* " "" path "${row}")
	file(READ ${ROOT}/${path} text)
	string(REPLACE "\\" "\\\\" text "${text}")
	string(REPLACE "\"" "\\\"" text "${text}")
	string(REPLACE "\t" "\\t" text "${text}")
	string(REPLACE "\n" "\\n\"\n\t\"" text "${text}")
	string(APPEND c "{ \"${name}\",\n\t\"${text}\" },\n")
endforeach()
string(APPEND c "};\nconst int nembedded = (int)(sizeof embedded / sizeof *embedded);\n")
file(WRITE ${OUT} "${c}")
