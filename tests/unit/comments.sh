#!/bin/sh
# comments.sh ROOT: no sentence of a comment opens with "Of", and no comment of C or GLSL with "The
# same", "As", "And" or the like, as few of such are sentences: they lack what they are about. None
# has "anew" or "likewise".
# SPDX-License-Identifier: MIT
set -eu
opens='(/\*+|//|#|"""|^ *\*|^|[.:;]) *Of |([*/#] |""").* (anew|likewise)[ .,;"]|^ *(/\*+|//) *(The same|As|Like|And|But|Or|Also|Else|So) '

found() { # found PATH...: such lines of sources
    grep -rnE "$opens" --include='*.[ch]' --include='*.hpp' --include='*.comp' --include='*.glsl' \
        --include='*.def' --include='*.py' --include='*.sh' --include='*.cmake' \
        --include=CMakeLists.txt --include='*.toml' --include='*.js' --include=run "$@"
}

# Each way in which a comment opens is seen first.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sees() { # sees FILE TEXT
    printf '%b\n' "$2" >"$work/$1"
    found "$work" >/dev/null || {
        echo "FAIL not seen in $1: $2"
        exit 1
    }
    rm "$work/$1"
}
sees a.c '/* Of a row. */'
sees a.h 'int x; /* Of a row. */'
sees a.h '/* ---- rows --------\n * Of a row. */'
sees a.comp '// Of a row.'
sees a.py '# Of a row.'
sees a.py 'def f():\n    """Of a row."""'
sees a.py '"""A row.\n\n    Of it.\n    """'
sees a.py '# A row. Of it.'
sees CMakeLists.txt '# Of a row.'
sees a.h '/* The same of a row. */'
sees a.comp '    // As in a row.'
sees a.py '# Made anew.'
printf '/* of a row; Official. Assert. */\nint Of = 1; /* as a row. */\n' >"$work/a.c"
! found "$work" || { echo "FAIL these are seen" && exit 1; }

cd "$1"
if found .ci cmake examples include python shaders src tests tools --exclude=comments.sh; then
    echo "FAIL: say what it is, that is of it, or the same"
    exit 1
fi
