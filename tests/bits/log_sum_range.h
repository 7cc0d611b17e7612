/* log_sum_exp at the ends of the range. */
#ifndef TESTS_LOG_SUM_RANGE_H
#define TESTS_LOG_SUM_RANGE_H

/* Each kernel of attention that the device takes: NaN, infinities, largest and smallest scores, rows
 * without keys. *state is the device. */
void log_sum_range(void **state);

#endif
