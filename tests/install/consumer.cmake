# cmake -DMODE=mode -DWORK=folder -DBUILD=tree -DSOURCE=root -DGENERATOR=name -DCOMPILER=cc
#       -DCXX=c++ -DMPI=0 -P consumer.cmake
# Programs that use vkattn, built and run. Mode install moves an installed tree to WORK/moved, which
# package and pkg_config use; source takes the source as a subdirectory; absolute configures the source
# for folders that are not below the prefix.
cmake_minimum_required(VERSION 3.25)
set(CONSUMER ${SOURCE}/tests/install/consumer)

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGN}\n${text}")
  endif()
endfunction()

# Builds the consumer project with some options and runs its three programs.
function(build_and_run FOLDER)
  file(REMOVE_RECURSE ${FOLDER})
  run(${CMAKE_COMMAND} -G ${GENERATOR} -S ${CONSUMER} -B ${FOLDER} -DCMAKE_C_COMPILER=${COMPILER}
      -DCMAKE_CXX_COMPILER=${CXX} ${ARGN})
  run(${CMAKE_COMMAND} --build ${FOLDER})
  foreach(program consumer consumer_static consumer_cxx)
    run(${FOLDER}/${program})
  endforeach()
  execute_process(COMMAND ldd ${FOLDER}/consumer_static OUTPUT_VARIABLE needs
                  COMMAND_ERROR_IS_FATAL ANY)
  if(needs MATCHES "libvkattn")
    message(FATAL_ERROR "the static program needs a shared libvkattn:\n${needs}")
  endif()
endfunction()

if(MODE STREQUAL "install")
  file(REMOVE_RECURSE ${WORK})
  run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/first)
  file(RENAME ${WORK}/first ${WORK}/moved)
  run(${WORK}/moved/bin/vkattn help)
elseif(MODE STREQUAL "package")
  build_and_run(${WORK}/package -DCMAKE_PREFIX_PATH=${WORK}/moved -DWITH_MPI=${MPI})
  if(MPI)
    run(${WORK}/package/consumer_mpi)
  endif()
elseif(MODE STREQUAL "source")
  # With settings of the project that are not for the library.
  build_and_run(${WORK}/source -DVKATTN_SOURCE=${SOURCE} -DCMAKE_UNITY_BUILD=ON
                -DBUILD_SHARED_LIBS=OFF)
elseif(MODE STREQUAL "absolute")
  file(REMOVE_RECURSE ${WORK}/absolute)
  run(${CMAKE_COMMAND} -G ${GENERATOR} -S ${SOURCE} -B ${WORK}/absolute -DCMAKE_C_COMPILER=${COMPILER}
      -DVKATTN_BUILD_TESTS=OFF -DCMAKE_INSTALL_PREFIX=/some/own -DCMAKE_INSTALL_LIBDIR=/some/lib
      -DCMAKE_INSTALL_INCLUDEDIR=/some/headers)
  file(STRINGS ${WORK}/absolute/CMakeCache.txt type REGEX "^CMAKE_BUILD_TYPE:")
  if(GENERATOR MATCHES "Ninja$|Makefiles" AND NOT type MATCHES "=RelWithDebInfo$")
    message(FATAL_ERROR "without a build type: ${type}")
  endif()
  set(ENV{PKG_CONFIG_PATH} ${WORK}/absolute/cmake)
  execute_process(COMMAND pkg-config --cflags --libs vkattn OUTPUT_VARIABLE flags
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  if(NOT flags MATCHES "^-I/some/headers -L/some/lib +-lvkattn$")
    message(FATAL_ERROR "pkg-config gives ${flags}")
  endif()
  file(READ ${WORK}/absolute/tools/vkattn/cmake_install.cmake rules)
  if(NOT rules MATCHES "/some/lib" OR rules MATCHES "ORIGIN/../")
    message(FATAL_ERROR "the commands do not find the library in /some/lib")
  endif()
elseif(MODE STREQUAL "pkg_config")
  file(GLOB_RECURSE pc ${WORK}/moved/vkattn.pc)
  cmake_path(GET pc PARENT_PATH pc_dir)
  cmake_path(GET pc_dir PARENT_PATH lib_dir)
  set(ENV{PKG_CONFIG_PATH} ${pc_dir})
  foreach(kind shared static)
    set(how --${kind})
    execute_process(COMMAND pkg-config ${how} --cflags --libs vkattn OUTPUT_VARIABLE flags
                    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    if(kind STREQUAL static)
      string(REPLACE "-lvkattn" "-l:libvkattn.a" flags "${flags}")
    endif()
    separate_arguments(flags UNIX_COMMAND "${flags}")
    run(${COMPILER} -DWITHOUT_IO ${CONSUMER}/consumer.c -o ${WORK}/${kind}-by-pkg-config ${flags}
        -Wl,-rpath,${lib_dir})
    run(${WORK}/${kind}-by-pkg-config)
    if(kind STREQUAL shared) # the installed examples, by the commands in their first lines
      file(GLOB examples ${WORK}/moved/share/doc/vkattn/examples/*.c
                         ${WORK}/moved/share/doc/vkattn/examples/*.cpp)
      list(LENGTH examples count)
      if(count LESS 6)
        message(FATAL_ERROR "only ${count} examples are installed: ${examples}")
      endif()
      foreach(example IN LISTS examples)
        set(compiler ${COMPILER})
        if(example MATCHES "cpp$")
          set(compiler ${CXX} -std=c++17)
        endif()
        run(${compiler} ${example} -o ${WORK}/example -lvulkan ${flags} -lvkattn_io)
      endforeach()
    endif()
  endforeach()
else()
  message(FATAL_ERROR "unknown mode '${MODE}'")
endif()
