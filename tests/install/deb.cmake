# cmake -DSOURCE=root -DWORK=folder -DGENERATOR=name -DCOMPILER=cc -DMPI=0|1 -P deb.cmake
# Makes the Debian packages as the preset "package" does, in WORK/tree, unpacks them, and looks at
# what they say and have. MPI is the second's alone, which there is where vkattn_mpi is built:
# -DMPI=1.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/elf.cmake)

function(run OUTPUT)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGN}\n${text}")
  endif()
  set(${OUTPUT} "${text}" PARENT_SCOPE)
endfunction()

file(GLOB old ${WORK}/*.deb ${WORK}/vkattn ${WORK}/vkattn-mpi)
file(REMOVE_RECURSE ${old} ${WORK}/_CPack_Packages) # the tree stays: a second time builds little
run(text ${CMAKE_COMMAND} -S ${SOURCE} --preset package -B ${WORK}/tree -G ${GENERATOR}
    -DCMAKE_C_COMPILER=${COMPILER} -DVKATTN_BUILD_MPI=${MPI})
run(text ${CMAKE_COMMAND} --build ${WORK}/tree --parallel 2)
run(text ${CMAKE_CPACK_COMMAND} --config ${WORK}/tree/CPackConfig.cmake -B ${WORK})
load_cache(${WORK}/tree READ_WITH_PREFIX "" CMAKE_INSTALL_LIBDIR)
set(LIBDIR ${CMAKE_INSTALL_LIBDIR})

# check_package(NAME DEPENDS FILES): into ${WORK}/NAME; its fields are ${fields} then.
function(check_package NAME DEPENDS FILES)
  file(GLOB package ${WORK}/${NAME}_*.deb)
  run(fields dpkg-deb --field ${package})
  foreach(name IN LISTS DEPENDS)
    if(NOT fields MATCHES "Depends: [^\n]*${name}")
      message(SEND_ERROR "${NAME} does not depend on ${name}:\n${fields}")
    endif()
  endforeach()
  if(NOT fields MATCHES "Maintainer: [^\n]+ <[^\n@]+@[^\n]+>\n")
    message(SEND_ERROR "${NAME} has no maintainer with an address:\n${fields}")
  endif()
  run(triggers dpkg-deb --info ${package} triggers)
  if(NOT triggers MATCHES "^activate-noawait ldconfig\n")
    message(SEND_ERROR "${NAME} does not have the loader's cache renewed: '${triggers}'")
  endif()
  run(text dpkg-deb --extract ${package} ${WORK}/${NAME})
  check_elf(${WORK}/${NAME})
  foreach(file IN LISTS FILES)
    if(NOT EXISTS ${WORK}/${NAME}/usr/${file})
      message(SEND_ERROR "${NAME} lacks ${file}")
    endif()
  endforeach()
  set(fields "${fields}" PARENT_SCOPE)
endfunction()

check_package(vkattn "libc6;libjansson4;libvulkan1"
  "bin/vkattn;bin/vkattn-mnist;include/vkattn/vkattn.h;include/vkattn/vkattn_vulkan.h;include/vkattn/vkattn_cache.h;include/vkattn/vkattn_dtype.h;include/vkattn/vkattn_model.h;include/vkattn/vkattn_train.h;include/vkattn/vkattn.hpp;share/doc/vkattn/examples/attention.c;\
share/man/man1/vkattn.1.gz;share/man/man1/vkattn-mnist.1.gz;share/doc/vkattn/changelog.gz;\
share/bash-completion/completions/vkattn;share/zsh/site-functions/_vkattn;\
share/fish/vendor_completions.d/vkattn.fish;share/doc/vkattn/copyright")
if(fields MATCHES "mpi")
  message(SEND_ERROR "vkattn depends on an MPI:\n${fields}")
endif()
run(text ${CMAKE_COMMAND} -D SOURCE=${SOURCE} -D MODULES=${WORK}/tree/shaders
         -D LIBRARY=${WORK}/vkattn/usr/${LIBDIR}/libvkattn.so.0
         -P ${CMAKE_CURRENT_LIST_DIR}/kernels.cmake)
run(text ${CMAKE_COMMAND} -E env LD_LIBRARY_PATH=${WORK}/vkattn/usr/${LIBDIR}
         ${WORK}/vkattn/usr/bin/vkattn version)
if(MPI)
  check_package(vkattn-mpi "vkattn \\(= ;libopenmpi|libmpich"
    "bin/vkattn-mpi;include/vkattn/vkattn_mpi.h;${LIBDIR}/libvkattn_mpi.so;\
${LIBDIR}/pkgconfig/vkattn_mpi.pc;share/man/man1/vkattn-mpi.1.gz;\
share/doc/vkattn-mpi/changelog.gz;share/doc/vkattn-mpi/copyright")
  run(text ${CMAKE_COMMAND} -E env
           LD_LIBRARY_PATH=${WORK}/vkattn/usr/${LIBDIR}:${WORK}/vkattn-mpi/usr/${LIBDIR}
           ${WORK}/vkattn-mpi/usr/bin/vkattn-mpi help)
endif()
