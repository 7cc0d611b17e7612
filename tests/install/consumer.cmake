# cmake -DBUILD=tree -DSOURCE=tests/install/consumer -DWORK=folder -DGENERATOR=name
#       -DCOMPILER=cc -DMPI=0 -P consumer.cmake
# Installs the build tree, moves it, and builds and runs a consumer by find_package and pkg-config.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGN}\n${text}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/first)
file(RENAME ${WORK}/first ${WORK}/moved)
run(${CMAKE_COMMAND} -G ${GENERATOR} -S ${SOURCE} -B ${WORK}/build
    -DCMAKE_C_COMPILER=${COMPILER} -DCMAKE_PREFIX_PATH=${WORK}/moved
    -DWITH_MPI=${MPI})
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/consumer)
if(MPI)
  run(${WORK}/build/consumer_mpi)
endif()

file(GLOB_RECURSE pc ${WORK}/moved/vkattn.pc)
cmake_path(GET pc PARENT_PATH pc_dir)
set(ENV{PKG_CONFIG_PATH} ${pc_dir})
execute_process(COMMAND pkg-config --cflags --libs vkattn OUTPUT_VARIABLE flags
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND "${flags}")
cmake_path(GET pc_dir PARENT_PATH lib_dir)
run(${COMPILER} -DWITHOUT_IO ${SOURCE}/consumer.c -o ${WORK}/by-pkg-config ${flags} -Wl,-rpath,${lib_dir})
run(${WORK}/by-pkg-config)
run(${WORK}/moved/bin/vkattn help)
