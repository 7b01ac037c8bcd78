/* Math functions for the loops of emitted kernels. */
#ifndef CPU_MATH_H
#define CPU_MATH_H

#include <math.h>

/* glibc has vector versions of these functions, which gcc uses in simd loops once they are declared so. Their error is
 * at most 4 ulp; infinities and NaN keep their meaning. */
#if defined __x86_64__ && defined __GNUC__ && !defined __clang__ && defined __GLIBC_PREREQ
#if __GLIBC_PREREQ(2, 35)
#define PD_VECTOR __attribute__((simd("notinbranch")))
PD_VECTOR extern float expf(float);
PD_VECTOR extern float logf(float);
PD_VECTOR extern float powf(float, float);
PD_VECTOR extern float sinf(float);
PD_VECTOR extern float cosf(float);
PD_VECTOR extern float tanhf(float);
PD_VECTOR extern float erff(float);
PD_VECTOR extern float log1pf(float);
PD_VECTOR extern float expm1f(float);
#endif
#endif

#endif
