# cmake -DSOURCE=root -DWORK=folder -DGENERATOR=name -DCOMPILER=cc -DMPI=0|1 -P deb.cmake
# Makes the Debian packages as the preset "package" does, in WORK/tree, unpacks them all into WORK/root, and
# looks at what they say and have. The last three are there where vkattn_mpi is built: -DMPI=1.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/elf.cmake)

function(run OUTPUT)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGN}\n${text}")
  endif()
  set(${OUTPUT} "${text}" PARENT_SCOPE)
endfunction()

file(GLOB old ${WORK}/*.deb ${WORK}/root)
file(REMOVE_RECURSE ${old} ${WORK}/_CPack_Packages) # the tree stays: a second time builds little
# Looked at is what packages hold and say, not how fast or small it is.
run(text ${CMAKE_COMMAND} -S ${SOURCE} --preset package -B ${WORK}/tree -G ${GENERATOR}
    -DCMAKE_C_COMPILER=${COMPILER} -DVKATTN_BUILD_MPI=${MPI} "-DCMAKE_C_FLAGS_RELEASE=-O1 -DNDEBUG")
set(ENV{DPKG_DEB_COMPRESSOR_LEVEL} 1)
run(text ${CMAKE_COMMAND} --build ${WORK}/tree --parallel 2)
run(text ${CMAKE_CPACK_COMMAND} --config ${WORK}/tree/CPackConfig.cmake -B ${WORK})
load_cache(${WORK}/tree READ_WITH_PREFIX "" CMAKE_INSTALL_LIBDIR)
set(LIBDIR ${CMAKE_INSTALL_LIBDIR})

# check_package(NAME DEPENDS FILES): into ${WORK}/root, which no other package has these files in.
function(check_package NAME DEPENDS FILES)
  file(GLOB package ${WORK}/${NAME}_*.deb)
  run(fields dpkg-deb --field ${package})
  foreach(name IN LISTS DEPENDS)
    if(NOT fields MATCHES "Depends: [^\n]*${name}")
      message(SEND_ERROR "${NAME} does not depend on ${name}:\n${fields}")
    endif()
  endforeach()
  if(NOT NAME MATCHES "mpi" AND fields MATCHES "mpi")
    message(SEND_ERROR "${NAME} depends on an MPI:\n${fields}")
  endif()
  if(NOT fields MATCHES "Maintainer: [^\n]+ <[^\n@]+@[^\n]+>\n")
    message(SEND_ERROR "${NAME} has no maintainer with an address:\n${fields}")
  endif()
  run(control dpkg-deb --ctrl-tarfile ${package})
  if(control MATCHES "postinst|postrm")
    message(SEND_ERROR "${NAME} has scripts")
  endif()
  if(NAME MATCHES "[0-9]$")
    run(triggers dpkg-deb --info ${package} triggers)
    if(NOT triggers MATCHES "^activate-noawait ldconfig\n")
      message(SEND_ERROR "${NAME} does not have the loader's cache renewed: '${triggers}'")
    endif()
    run(shlibs dpkg-deb --info ${package} shlibs)
  endif()
  run(listed dpkg-deb --contents ${package})
  list(APPEND FILES share/doc/${NAME}/changelog.gz share/doc/${NAME}/copyright)
  foreach(file IN LISTS FILES)
    if(NOT listed MATCHES " \\./usr/${file}( -> [^\n]*)?\n")
      message(SEND_ERROR "${NAME} lacks ${file}")
    endif()
    if(EXISTS ${WORK}/root/usr/${file})
      message(SEND_ERROR "${file} is in ${NAME} and in another package")
    endif()
  endforeach()
  run(text dpkg-deb --extract ${package} ${WORK}/root)
endfunction()

set(docs share/doc/libvkattn-dev/examples)
set(python lib/python3/dist-packages/vkattn)
check_package(libvkattn0 "libc6;libvulkan1" "${LIBDIR}/libvkattn.so.0")
check_package(libvkattn-dev "libvkattn0 \\(= "
  "include/vkattn/vkattn.h;include/vkattn/vkattn_vulkan.h;include/vkattn/vkattn_cache.h;include/vkattn/vkattn_dtype.h;\
include/vkattn/vkattn_model.h;include/vkattn/vkattn_train.h;include/vkattn/vkattn_io.h;include/vkattn/vkattn_operations.h;include/vkattn/vkattn.hpp;\
${docs}/attention.c;${docs}/train.py;${LIBDIR}/libvkattn.so;${LIBDIR}/libvkattn.a;${LIBDIR}/libvkattn_io.a;\
${LIBDIR}/pkgconfig/vkattn.pc;${LIBDIR}/cmake/vkattn/vkattn-config.cmake")
check_package(vkattn "libc6;libjansson4;libvkattn0 \\(= "
  "bin/vkattn;bin/vkattn-mnist;share/man/man1/vkattn.1.gz;share/man/man1/vkattn-mnist.1.gz;\
share/bash-completion/completions/vkattn;share/zsh/site-functions/_vkattn;\
share/fish/vendor_completions.d/vkattn.fish")
check_package(python3-vkattn "libvkattn0 \\(= ;python3-numpy;python3-cffi"
  "${python}/__init__.py;${python}/models/__init__.py;${python}/vkattn.h;${python}/libvkattn.so.0")
if(MPI)
  check_package(libvkattn-mpi0 "libvkattn0 \\(= ;libopenmpi|libmpich" "${LIBDIR}/libvkattn_mpi.so.0")
  check_package(libvkattn-mpi-dev "libvkattn-mpi0 \\(= ;libvkattn-dev \\(= "
    "include/vkattn/vkattn_mpi.h;${LIBDIR}/libvkattn_mpi.so;${LIBDIR}/pkgconfig/vkattn_mpi.pc")
  check_package(vkattn-mpi "libvkattn-mpi0 \\(= " "bin/vkattn-mpi;share/man/man1/vkattn-mpi.1.gz")
endif()
check_elf(${WORK}/root)

run(text ${CMAKE_COMMAND} -D SOURCE=${SOURCE} -D MODULES=${WORK}/tree/shaders
         -D LIBRARY=${WORK}/root/usr/${LIBDIR}/libvkattn.so.0
         -P ${CMAKE_CURRENT_LIST_DIR}/kernels.cmake)
set(ENV{LD_LIBRARY_PATH} ${WORK}/root/usr/${LIBDIR})
run(text ${WORK}/root/usr/bin/vkattn version)
if(MPI)
  run(text ${WORK}/root/usr/bin/vkattn-mpi help)
endif()
find_program(PYTHON python3 HINTS /usr/bin) # that of Debian, which has its modules
execute_process(COMMAND ${PYTHON} -c "import numpy, cffi" RESULT_VARIABLE result ERROR_QUIET)
if(result EQUAL 0) # the package finds its library and headers
  unset(ENV{VKATTN_LIBRARY})
  set(ENV{PYTHONPATH} ${WORK}/root/usr/lib/python3/dist-packages)
  run(text ${PYTHON} -B -c "import vkattn; assert vkattn.__file__.startswith('${WORK}/root'), vkattn.__file__")
else()
  message("SKIPPED: no python3 with numpy and cffi imported python3-vkattn")
endif()
