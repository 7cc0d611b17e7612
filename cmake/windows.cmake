# Toolchain: Windows on x86-64, by the mingw-w64 of Debian.
#
# Libraries for Windows come from the folder VKATTN_WINDOWS_LIBRARIES, which
# tools/dev/windows_libraries.sh fills; programs run by Wine where it is installed.
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR AMD64)

set(triple x86_64-w64-mingw32)
set(CMAKE_C_COMPILER ${triple}-gcc)
set(CMAKE_CXX_COMPILER ${triple}-g++)
set(CMAKE_RC_COMPILER ${triple}-windres)

list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES VKATTN_WINDOWS_LIBRARIES)
list(APPEND CMAKE_FIND_ROOT_PATH /usr/${triple} ${VKATTN_WINDOWS_LIBRARIES})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_LIBDIR} ${VKATTN_WINDOWS_LIBRARIES}/lib/pkgconfig)
set(ENV{PKG_CONFIG_PATH} "")

find_program(WINE wine)
if(WINE)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${CMAKE_CURRENT_LIST_DIR}/../tools/dev/wine.sh)
endif()
