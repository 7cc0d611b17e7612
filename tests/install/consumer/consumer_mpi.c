/* The installed vkattn_mpi, without a rank beside this one: what it shares out is all here. */
#include <vkattn/vkattn_mpi.h>

int main(void)
{
    struct vka_mpi_range query, key;
    vka_mpi_heads(12, 4, 1, 0, &query, &key);
    return query.count == 12 && key.count == 4 && *vka_mpi_error(NULL) == 0 ? 0 : 1;
}
