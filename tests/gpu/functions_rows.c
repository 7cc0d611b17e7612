#include "functions.h"
#include <stddef.h>
const struct function row_functions[] = {{.name = NULL}};
