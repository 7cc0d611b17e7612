# Toolchain: Linux on arm64, by the cross compiler of Debian, against the folder VKATTN_ARM64_TREE,
# which tools/dev/arm64_tree.sh fills; programs run by qemu where it is installed.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)

set(triple aarch64-linux-gnu)
set(CMAKE_C_COMPILER ${triple}-gcc)
find_program(CXX ${triple}-g++) # which only tests of the headers take
if(CXX)
  set(CMAKE_CXX_COMPILER ${CXX})
endif()
set(CMAKE_LIBRARY_ARCHITECTURE ${triple})

list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES VKATTN_ARM64_TREE)
set(CMAKE_SYSROOT ${VKATTN_ARM64_TREE})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_LIBDIR}
    ${VKATTN_ARM64_TREE}/usr/lib/${triple}/pkgconfig:${VKATTN_ARM64_TREE}/usr/share/pkgconfig)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${VKATTN_ARM64_TREE})

find_program(QEMU qemu-aarch64)
if(QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${CMAKE_CURRENT_LIST_DIR}/../tools/dev/arm64.sh)
endif()
