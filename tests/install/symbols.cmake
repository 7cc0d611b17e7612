# What a library exports: vka_ names only, and every function that its headers declare.
#
#   cmake -D NM=nm -D LIBRARY=libvkattn.so -D FOLDER=include/vkattn -D HEADERS=vkattn,vkattn_vulkan
#         -P symbols.cmake
cmake_minimum_required(VERSION 3.25)
if(LIBRARY MATCHES "\\.a$")
  set(which -g)
else()
  set(which -D)
endif()
execute_process(COMMAND "${NM}" ${which} --defined-only "${LIBRARY}"
                OUTPUT_VARIABLE listing COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^\n ]+\n" exported "${listing}")
list(TRANSFORM exported STRIP)
list(FILTER exported EXCLUDE REGEX ":$") # the names of an archive's members

set(strangers ${exported})
list(FILTER strangers EXCLUDE REGEX "^vka_")
if(strangers)
  message(SEND_ERROR "exported, and not vka_: ${strangers}")
endif()

set(declared 0)
string(REPLACE "," ";" HEADERS "${HEADERS}")
foreach(header IN LISTS HEADERS)
  file(READ "${FOLDER}/${header}.h" text)
  string(REGEX MATCHALL "VKA_API [^;(]*[ *]vka_[a-z0-9_]+\\(" declarations "${text}")
  foreach(declaration IN LISTS declarations)
    string(REGEX MATCH "vka_[a-z0-9_]+\\($" name "${declaration}")
    string(REPLACE "(" "" name "${name}")
    math(EXPR declared "${declared} + 1")
    if(NOT name IN_LIST exported)
      message(SEND_ERROR "declared, and not exported: ${name}")
    endif()
  endforeach()
endforeach()
if(declared EQUAL 0)
  message(FATAL_ERROR "no declarations found in ${HEADERS}")
endif()
list(LENGTH exported count)
message("${LIBRARY}: ${count} symbols, ${declared} declared")
