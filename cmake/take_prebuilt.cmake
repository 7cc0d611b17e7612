# cmake -DSHADERS=folder [-DID=kernel -DOUT=file.spv] -P take_prebuilt.cmake
# Copies the prebuilt module of a kernel to OUT and writes the files that it depends on to OUT.d.
# Without ID, checks all prebuilt modules. Where one is missing, or was made from other sources than
# SHADERS has, fails and prints the commands that make it. Any compiler may have made it.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/kernels.cmake)

set(PREBUILT ${SHADERS}/prebuilt)
set(MANIFEST ${PREBUILT}/manifest.txt)

# check_prebuilt(ID): adds ID to the caller's list `stale` where its module is not what it would be.
function(check_prebuilt ID)
  kernel_hash(inputs ${SHADERS} ${ID})
  set(module)
  if(EXISTS ${PREBUILT}/${ID}.spv)
    file(SHA256 ${PREBUILT}/${ID}.spv module)
  endif()
  set(lines)
  if(EXISTS ${MANIFEST})
    file(STRINGS ${MANIFEST} lines)
  endif()
  if(NOT "${ID} ${inputs} ${module}" IN_LIST lines)
    set(stale ${stale} ${ID} PARENT_SCOPE)
  endif()
endfunction()

kernels_read(${SHADERS})
set(wanted ${ID})
if(NOT ID)
  foreach(kernel IN LISTS KERNEL_IDS)
    if(${kernel}_NEEDS MATCHES "${KERNEL_PREBUILT_NEEDS}")
      list(APPEND wanted ${kernel})
    endif()
  endforeach()
endif()

if(OUT)
  file(REMOVE ${OUT}) # it may be write-protected, as a copy of what is
endif()
set(stale)
foreach(kernel IN LISTS wanted)
  check_prebuilt(${kernel})
endforeach()
if(stale)
  list(JOIN stale ", " stale)
  message(FATAL_ERROR
    "shaders/prebuilt has these kernels not at all, or from other sources than there are now:\n"
    "    ${stale}\n"
    "Make it again, with glslangValidator 16 or later:\n"
    "    tools/dev/prebuild_shaders.sh /path/to/glslangValidator\n"
    "or, where there is none, with that of a Debian sid tree:\n"
    "    tools/dev/sid_tree.sh build-sid\n"
    "    tools/dev/prebuild_shaders.sh build-sid\n")
endif()

if(ID)
  file(COPY_FILE ${PREBUILT}/${ID}.spv ${OUT})
  kernel_inputs(inputs ${SHADERS} ${ID})
  list(TRANSFORM inputs PREPEND ${SHADERS}/)
  set(text "${OUT}:")
  foreach(file IN LISTS inputs ITEMS ${PREBUILT}/${ID}.spv)
    string(REPLACE " " "\\ " file "${file}")
    string(APPEND text " \\\n  ${file}")
  endforeach()
  file(WRITE ${OUT}.d "${text}\n")
endif()
