/* The functions of libclang that check.c calls, found when a build folder is checked: linked in, libclang and LLVM would cost
 * every start of pdcc 15 ms and 40 MB. */
#ifndef PD_CLANG_H
#define PD_CLANG_H
#include <clang-c/Index.h>

/* clang-format off */
#define CLANG_FUNCTIONS(X) \
	X(Cursor_Evaluate) X(Cursor_getArgument) X(Cursor_getTranslationUnit) X(Cursor_isNull) X(EvalResult_dispose) \
	X(EvalResult_getAsLongLong) X(EvalResult_getKind) X(Type_getSizeOf) X(createIndex) X(defaultDiagnosticDisplayOptions) \
	X(disposeDiagnostic) X(disposeIndex) X(disposeString) X(disposeTokens) X(disposeTranslationUnit) X(formatDiagnostic) \
	X(getCString) X(getCursorExtent) X(getCursorKind) X(getCursorLocation) X(getCursorReferenced) X(getCursorSpelling) \
	X(getCursorType) X(getDiagnostic) X(getDiagnosticSeverity) X(getExpansionLocation) X(getFileName) X(getNullCursor) \
	X(getNumDiagnostics) X(getTokenKind) X(getTokenSpelling) X(getTranslationUnitCursor) X(parseTranslationUnit2) \
	X(tokenize) X(visitChildren)
/* clang-format on */

typedef struct Clang {
#define X(name) __typeof__(clang_##name) *name;
	CLANG_FUNCTIONS(X)
#undef X
} Clang;
#endif
