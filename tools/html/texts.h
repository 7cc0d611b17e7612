/* Style sheets and scripts that the build embeds, each with a NUL at its end. */
#ifndef TOOLS_HTML_TEXTS_H
#define TOOLS_HTML_TEXTS_H

extern const char base_css[], base_js[]; /* of every page */
extern const char page_css[], page_js[]; /* of vkattn-mnist */
extern const char run_css[], run_js[];   /* of vkattn run */

#endif
