# The library for other systems than this machine's, compiled on Linux by the clang of PyPI's package ziglang,
# which has the headers and names of theirs: wheels for Linux take those of an old glibc.
#
#   cmake --preset manylinux -DVKATTN_ZIG=FOLDER/bin/python -DVKATTN_TARGET=x86_64-linux-gnu.2.28
#
# VKATTN_ZIG is a Python that has ziglang; VKATTN_TARGET is MACHINE-SYSTEM as zig names them, of which
# tools/dev/other_systems.sh takes several. Vulkan's headers and volk are this machine's: they are the same
# on every system.
set(VKATTN_ZIG python3 CACHE FILEPATH "A Python that has PyPI's package ziglang")
set(VKATTN_TARGET x86_64-linux-gnu.2.28 CACHE STRING "A machine and a system, as zig names them")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES VKATTN_ZIG VKATTN_TARGET)
string(REGEX MATCH "^([^-]*)-([^-.]*)" _ ${VKATTN_TARGET})
set(CMAKE_SYSTEM_PROCESSOR ${CMAKE_MATCH_1})
string(REPLACE "linux" "Linux" CMAKE_SYSTEM_NAME ${CMAKE_MATCH_2})
string(REPLACE "freebsd" "FreeBSD" CMAKE_SYSTEM_NAME ${CMAKE_SYSTEM_NAME})
string(REPLACE "macos" "Darwin" CMAKE_SYSTEM_NAME ${CMAKE_SYSTEM_NAME})

set(CMAKE_C_COMPILER ${VKATTN_ZIG})
set(CMAKE_C_COMPILER_ARG1 "-m ziglang cc -target ${VKATTN_TARGET}")
find_program(CMAKE_STRIP NAMES ${CMAKE_SYSTEM_PROCESSOR}-linux-gnu-strip llvm-strip)
set(CMAKE_LIBRARY_ARCHITECTURE ${CMAKE_SYSTEM_PROCESSOR}-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(VOLK_INCLUDE_DIR ${CMAKE_BINARY_DIR}/vulkan CACHE PATH "Where volk.h and Vulkan's headers are copied to")

# /usr/include itself would bring this machine's glibc.
find_path(OWN_VOLK volk.h PATHS /usr/include NO_CMAKE_FIND_ROOT_PATH)
foreach(HEADER vulkan vk_video volk.h volk.c)
  if(NOT EXISTS ${VOLK_INCLUDE_DIR}/${HEADER})
    file(COPY ${OWN_VOLK}/${HEADER} DESTINATION ${VOLK_INCLUDE_DIR})
  endif()
endforeach()
file(WRITE ${VOLK_INCLUDE_DIR}/VulkanHeadersConfig.cmake
     "if(NOT TARGET Vulkan::Headers)
  add_library(Vulkan::Headers INTERFACE IMPORTED)
  set_target_properties(Vulkan::Headers PROPERTIES INTERFACE_INCLUDE_DIRECTORIES \"${VOLK_INCLUDE_DIR}\")
endif()\n")
set(VulkanHeaders_DIR ${VOLK_INCLUDE_DIR} CACHE PATH "")
