# cmake -DBUILD=tree -DWORK=folder -P deb.cmake
# Makes the Debian package, unpacks it, and looks at what it says and has.
cmake_minimum_required(VERSION 3.25)

function(run OUTPUT)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGN}\n${text}")
  endif()
  set(${OUTPUT} "${text}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK})
run(text ${CMAKE_CPACK_COMMAND} --config ${BUILD}/CPackConfig.cmake -B ${WORK})
file(GLOB package ${WORK}/*.deb)
run(fields dpkg-deb --field ${package})
foreach(name libc6 libjansson4 libvulkan1)
  if(NOT fields MATCHES "Depends: [^\n]*${name}")
    message(SEND_ERROR "the package does not depend on ${name}:\n${fields}")
  endif()
endforeach()
if(fields MATCHES "mpi")
  message(SEND_ERROR "the package depends on an MPI:\n${fields}")
endif()
run(text dpkg-deb --extract ${package} ${WORK}/root)
foreach(file bin/vkattn bin/vkattn-mnist include/vkattn/vkattn.h include/vkattn/vkattn_vulkan.h
             share/man/man1/vkattn.1 share/bash-completion/completions/vkattn
             share/doc/vkattn/copyright)
  if(NOT EXISTS ${WORK}/root/usr/${file})
    message(SEND_ERROR "the package lacks ${file}")
  endif()
endforeach()
run(text ${WORK}/root/usr/bin/vkattn version)
