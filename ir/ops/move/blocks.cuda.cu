/* Concat and Split: on one side the tensors follow each other inside every one of ROWS rows. */
PD_HOST void NAME(PARAMS)
{
	BODY_GPU
}
