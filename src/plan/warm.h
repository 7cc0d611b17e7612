/* Has CPU drivers compile before the first run. They make machine code of a pipeline when it is first
 * dispatched, for seconds to minutes, within which a wait for a run would end too early. A dispatch
 * without workgroups has them compile too, and does nothing else. */
#ifndef VKA_PLAN_WARM_H
#define VKA_PLAN_WARM_H

#include "plan/state.h"

/* Has a CPU driver compile the pipelines of a recorded plan, which it would do in their first run,
 * and waits for it. TIMEOUT (compile_timeout): call it again; caller is of its sentence. */
enum vka_status plan_warm(struct vka_plan *plan, const char *caller);

#endif
