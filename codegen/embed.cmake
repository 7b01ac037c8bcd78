# Makes a C file that holds other files as text: cmake -DOUT=embedded.c -DROOT=DIR -P embed.cmake
# Names are relative to the source tree, templates of ops without the leading ir/.
file(GLOB list RELATIVE ${ROOT} ${ROOT}/ir/ops/*/*.cpu.c ${ROOT}/ir/ops/*/*.ref.c ${ROOT}/ir/ops/*/*.cuda.cu
	${ROOT}/ir/ops/*/*.part.h
	${ROOT}/runtime/*.cu
	${ROOT}/runtime/*.c ${ROOT}/runtime/*.h ${ROOT}/runtime/pdrun/*.[ch] ${ROOT}/runtime/README.md
	${ROOT}/codegen/*.in ${ROOT}/frontend/*.schema.json)
list(SORT list)
set(c "/* Written by the build (codegen/embed.cmake). */\n#include \"tmpl.h\"\n\nconst Embedded embedded[] = {\n")
foreach(name IN LISTS list)
	file(READ ${ROOT}/${name} text)
	string(REPLACE "\\" "\\\\" text "${text}")
	string(REPLACE "\"" "\\\"" text "${text}")
	string(REPLACE "\t" "\\t" text "${text}")
	string(REPLACE "\n" "\\n\"\n\t\"" text "${text}")
	string(REGEX REPLACE "^ir/" "" name "${name}")
	string(APPEND c "{ \"${name}\",\n\t\"${text}\" },\n")
endforeach()
string(APPEND c "};\nconst int nembedded = (int)(sizeof embedded / sizeof *embedded);\n")
file(WRITE ${OUT} "${c}")
