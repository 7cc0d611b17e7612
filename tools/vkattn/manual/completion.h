/* Completions of three shells, to stdout. SPDX-License-Identifier: MIT */
#ifndef MANUAL_COMPLETION_H
#define MANUAL_COMPLETION_H

void manual_bash(void);
void manual_zsh(void);
void manual_fish(void);

#endif
