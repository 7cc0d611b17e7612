# Takes the first example out of a text, so that what a reader copies is what a test compiles.
#
#   cmake -D INPUT=vkattn.h|start.md [-D AFTER=TEXT] -D OUTPUT=FILE -P extract.cmake
#
# AFTER: the first one behind that text. In a header: the first lines of a comment indented by four
# and more spaces. In Markdown: the first ```c block.
cmake_minimum_required(VERSION 3.25)
file(READ "${INPUT}" text)
if(AFTER)
  string(FIND "${text}" "${AFTER}" start)
  string(SUBSTRING "${text}" ${start} -1 text)
endif()
if(INPUT MATCHES "\\.md$")
  string(REGEX MATCH "\n```c\n([^`]*)```\n" block "${text}")
  set(example "${CMAKE_MATCH_1}")
else()
  string(REGEX MATCH "( \\*     [^\n]*\n)+" block "${text}")
  string(REGEX REPLACE "(^|\n) \\*     " "\\1    " example "${block}")
endif()
if(example STREQUAL "")
  message(FATAL_ERROR "${INPUT}: no example found")
endif()
file(WRITE "${OUTPUT}" "${example}")
