# cmake -DSOURCE=root -DMODULES=folder -DLIBRARY=file -P kernels.cmake
# Checks that a library has the kernel of every row of kernels.def: the bytes of MODULES/<id>.spv.
cmake_minimum_required(VERSION 3.25)
include(${SOURCE}/cmake/kernels.cmake)

file(READ ${LIBRARY} library HEX)
kernels_read(${SOURCE}/shaders)
foreach(id IN LISTS KERNEL_IDS)
  file(READ ${MODULES}/${id}.spv module HEX)
  string(FIND "${library}" "${module}" at)
  if(module STREQUAL "" OR at EQUAL -1)
    message(SEND_ERROR "${LIBRARY} lacks the kernel ${id}")
  endif()
endforeach()
