/* Window [o, d, h, w] has its winner at place k; y[at] says where that is in x. */
int64_t p = d * SD - PD + k / (KH * KW) * LD;
int64_t q = h * SH - PH + k / KW % KH * LH;
int64_t r = w * SW - PW + k % KW * LW;

p = p < 0 ? 0 : p < ID ? p : ID - 1;
q = q < 0 ? 0 : q < IH ? q : IH - 1;
r = r < 0 ? 0 : r < IW ? r : IW - 1;
#if COLUMNS
y[at] = o * ID * IH * IW + (r * IH + q) * ID + p;
#else
y[at] = ((o * ID + p) * IH + q) * IW + r;
#endif
