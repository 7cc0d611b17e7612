/* See begin.h. */
#undef U32
#undef I32
#undef F32
#undef STRUCT
