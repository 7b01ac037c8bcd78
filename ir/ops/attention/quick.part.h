/* 16-bit floats, heads of up to 64 columns in rows of whole multiples of 16 bytes, no mask and no bias. A warp has TALL times 16 rows,
 * and holds the operand that stays in registers; tiles of the other come while those before them are worked on. Scores stay products
 * (of UNIT each), and what hides some is done where a tile has such. */
static __device__ __forceinline__ float weight(float s, float base) { return pd_exp2(fmaf(s, UNIT * 1.44269504f, -base)); }
#if DROP

/* What is drawn for four scores so many groups further than `from` (score.part.h): pd_mix as few instructions. Of the upper half the last
 * shift changes the last bit alone, which says nothing where DROPPED is even. */
struct four { uint32_t w[2]; };

static __device__ __forceinline__ four drawn(uint64_t from, int64_t further)
{
	uint64_t x = from + (uint64_t)further * PD_RANDOM_STEP;

	x = pd_times<0xBF58476D1CE4E5B9u>(x ^ x >> 30);
	x = pd_times<0x94D049BB133111EBu>(x ^ x >> 27);
	const uint32_t high = (uint32_t)(x >> 32);
	return { { (uint32_t)(x ^ x >> 31), DROPPED % 2 ? high ^ high >> 31 : high } };
}

/* Whether dropout keeps one of them. */
static __device__ __forceinline__ bool keeps(const four &f, int piece)
{
	const uint32_t w = f.w[piece / 2 % 2];

	return (piece % 2 ? w : w << 16) >= DROPPED << 16;
}
#endif
