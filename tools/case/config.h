/* The config object of a case file. SPDX-License-Identifier: MIT */
#ifndef CASE_CONFIG_H
#define CASE_CONFIG_H

#include "contents.h"
#include "refuse.h"

/* Reads the config object. text NULL: all defaults. */
enum vka_status case_config_parse(const struct case_where *at, const char *text,
                                  struct case_config *config);

#endif
