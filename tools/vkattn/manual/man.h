/* The manual page, in mdoc, to stdout. SPDX-License-Identifier: MIT */
#ifndef MANUAL_MAN_H
#define MANUAL_MAN_H

void manual_man(void);

#endif
