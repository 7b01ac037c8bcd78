/* 16-bit floats, heads of up to 64 columns in rows of whole multiples of 16 bytes, no mask and no bias. A warp has TALL times 16 rows,
 * and holds the operand that stays in registers; tiles of the other come while those before them are worked on. Scores stay products
 * (of UNIT each), and what hides some is done where a tile has such. */
static __device__ __forceinline__ float weight(float s, float base) { return pd_exp2(fmaf(s, UNIT * 1.44269504f, -base)); }
#if DROP

/* What is drawn for four scores so many groups further than `from` (score.part.h): of pd_mix what tells which of them are dropped. Of an even
 * limit a piece's last bit tells nothing, and the others lie in the lower 15 bits of a half (HALVES). */
enum { HALVES = DROPPED % 2 == 0 && DROPPED <= 0xf800, LIMIT = HALVES ? DROPPED / 2 : 0 };
struct four { uint32_t w[2]; };

static __device__ __forceinline__ four drawn(uint64_t from, int64_t further)
{
	uint64_t x = from + (uint64_t)further * PD_RANDOM_STEP;

	x = pd_times<0xBF58476D1CE4E5B9u>(x ^ x >> 30);
	x = pd_times<0x94D049BB133111EBu>(x ^ x >> 27);
	const uint32_t low = (uint32_t)x, high = (uint32_t)(x >> 32);
	if (HALVES)
		return { { low >> 1 ^ high, high >> 1 } };
	return { { (uint32_t)(x ^ x >> 31), high ^ high >> 31 } };
}

/* Drops a and b, of pieces 0 and 1 (w[0]) or 2 and 3 (w[1]). */
static __device__ __forceinline__ void drop_two(uint32_t w, float &a, float &b)
{
	if (HALVES) {
		pd_least_two<LIMIT>(w, a, b);
	} else {
		a = w << 16 >= DROPPED << 16 ? a : 0;
		b = w >= DROPPED << 16 ? b : 0;
	}
}
#endif
