# Toolchain: Linux with glibc 2.28 or later (of which the library takes symbols up to 2.17), by clang of PyPI's
# package ziglang, which has the names and versions of every glibc. Only the library is built so, for wheels.
#
#   cmake --preset manylinux -DVKATTN_ZIG=FOLDER/bin/python -DVKATTN_MACHINE=x86_64
#
# VKATTN_ZIG is a Python that has ziglang, VKATTN_MACHINE x86_64 or aarch64. Vulkan's headers and volk are
# this machine's, as they are the same for every system.
set(VKATTN_ZIG python3 CACHE FILEPATH "A Python that has PyPI's package ziglang")
set(VKATTN_MACHINE x86_64 CACHE STRING "x86_64 or aarch64")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES VKATTN_ZIG VKATTN_MACHINE)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${VKATTN_MACHINE})

set(CMAKE_C_COMPILER ${VKATTN_ZIG})
set(CMAKE_C_COMPILER_ARG1 "-m ziglang cc -target ${VKATTN_MACHINE}-linux-gnu.2.28")
find_program(CMAKE_STRIP NAMES ${VKATTN_MACHINE}-linux-gnu-strip llvm-strip)
set(CMAKE_LIBRARY_ARCHITECTURE ${VKATTN_MACHINE}-linux-gnu)
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
