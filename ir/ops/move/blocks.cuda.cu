/* Concat and Split: on one side the tensors follow each other inside every row. */
PD_HOST void NAME(PARAMS)
{
	BODY_GPU
}
