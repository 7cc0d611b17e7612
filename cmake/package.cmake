# cpack: Debian packages, split as Debian splits libraries. A package is a component of install rules:
#
#   libvkattn0   the shared library        libvkattn-mpi0    that for several MPI ranks
#   libvkattn-dev  headers, static libraries, package files, examples   libvkattn-mpi-dev
#   vkattn       the commands              vkattn-mpi        the command
#   python3-vkattn  the Python package on the shared library
set(VKATTN_CONTACT "vkattn maintainers <maintainers@vkattn.example>"
    CACHE STRING "Name and address of who answers for the Debian packages")
set(COMPONENTS lib dev tools python3)
if(TARGET vkattn_mpi)
  list(APPEND COMPONENTS mpi_lib mpi_dev mpi)
endif()
set(NAME_lib libvkattn0)
set(NAME_dev libvkattn-dev)
set(NAME_tools vkattn)
set(NAME_python3 python3-vkattn)
set(NAME_mpi_lib libvkattn-mpi0)
set(NAME_mpi_dev libvkattn-mpi-dev)
set(NAME_mpi vkattn-mpi)

# Manuals and Debian's own changelog are compressed, without a name or a time inside.
find_program(GZIP gzip REQUIRED)
install(CODE "
  file(GLOB_RECURSE manuals \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_MANDIR}/vkattn*.1\")
  foreach(manual IN LISTS manuals)
    execute_process(COMMAND ${GZIP} -9nf \${manual} COMMAND_ERROR_IS_FATAL ANY)
  endforeach()" ALL_COMPONENTS)
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC) # or of SOURCE_DATE_EPOCH
foreach(component IN LISTS COMPONENTS)
  set(package ${NAME_${component}})
  set(changelog ${PROJECT_BINARY_DIR}/debian/${package}/changelog)
  file(CONFIGURE OUTPUT ${changelog} @ONLY
       CONTENT "vkattn (@PROJECT_VERSION@) unstable; urgency=medium

  * What changed is told in CHANGELOG.md of vkattn.

 -- @VKATTN_CONTACT@  @date@
")
  execute_process(COMMAND ${GZIP} -9nf ${changelog} COMMAND_ERROR_IS_FATAL ANY)
  set(docs ${CMAKE_INSTALL_DATADIR}/doc/${package})
  install(FILES ${changelog}.gz DESTINATION ${docs} COMPONENT ${component})
  if(NOT component STREQUAL tools) # has it in any installation
    install(FILES ${PROJECT_BINARY_DIR}/copyright DESTINATION ${docs} COMPONENT ${component})
  endif()
endforeach()

# The package of python/, with what pip would know of it, on the library of libvkattn0.
set(packages ${CMAKE_INSTALL_PREFIX}/lib/python3/dist-packages)
vkattn_python_files(${packages}/vkattn COMPONENT python3)
file(RELATIVE_PATH library ${packages}/vkattn ${CMAKE_INSTALL_FULL_LIBDIR}/libvkattn.so.0)
install(CODE "
  set(folder \"\$ENV{DESTDIR}${packages}\")
  file(CREATE_LINK ${library} \"\${folder}/vkattn/libvkattn.so.0\"
       SYMBOLIC)
  file(WRITE \"\${folder}/vkattn-${PROJECT_VERSION}.dist-info/METADATA\"
       \"Metadata-Version: 2.1\nName: vkattn\nVersion: ${PROJECT_VERSION}\nSummary: ${PROJECT_DESCRIPTION}\n\")
  file(WRITE \"\${folder}/vkattn-${PROJECT_VERSION}.dist-info/INSTALLER\" \"debian\n\")"
  COMPONENT python3)

set(CPACK_GENERATOR DEB)
set(CPACK_DEBIAN_COMPRESSION_TYPE gzip) # finish_debs.cmake takes xz
set(CPACK_PACKAGE_NAME vkattn)
set(CPACK_PACKAGE_CONTACT "${VKATTN_CONTACT}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_COMPONENTS_ALL ${COMPONENTS})
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)

# What is linked is found by dpkg-shlibdeps; the Vulkan loader is opened at run time.
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_HOMEPAGE ${PROJECT_HOMEPAGE_URL})
# The loader's cache is renewed by a trigger. cpack adds scripts that do so once more, which
# finish_debs.cmake takes out.
set(CPACK_DEBIAN_LIB_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/cmake/debian/triggers)
set(CPACK_DEBIAN_MPI_LIB_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/cmake/debian/triggers)
set(CPACK_POST_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/debian/finish_debs.cmake)

set(same "(= ${PROJECT_VERSION})")
# deb(COMPONENT SECTION DEPENDS SUMMARY DESCRIPTION)
macro(deb COMPONENT SECTION DEPENDS SUMMARY DESCRIPTION)
  string(TOUPPER ${COMPONENT} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${NAME_${COMPONENT}})
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION ${SECTION})
  set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${DEPENDS}")
  set(CPACK_DEBIAN_${upper}_DESCRIPTION "${SUMMARY}\n${DESCRIPTION}")
endmacro()
deb(lib libs "libvulkan1" "attention layers as Vulkan compute shaders, shared library"
    "Runs whole multi-head attention layers, and what models have around them,
on any Vulkan device: GPUs, or Mesa's driver for processors.")
deb(dev libdevel "libvkattn0 ${same}" "attention layers as Vulkan compute shaders, headers"
    "The headers for C and C++, static libraries, package files for CMake and
pkg-config, and programs to begin with.")
deb(tools science "libvkattn0 ${same}" "attention layers as Vulkan compute shaders, commands"
    "The command vkattn lists devices, runs layers and cases, measures and tunes;
vkattn-mnist classifies handwritten digits by one attention layer.")
deb(python3 python "libvkattn0 ${same}, python3:any, python3-cffi, python3-numpy"
    "attention layers as Vulkan compute shaders, for Python"
    "Attention, layers and whole models on numpy arrays, and operators of PyTorch.")
deb(mpi_lib libs "libvkattn0 ${same}" "attention layers on the devices of several MPI ranks, library"
    "Divides attention layers among the Vulkan devices of the ranks of an MPI job.")
deb(mpi_dev libdevel "libvkattn-mpi0 ${same}, libvkattn-dev ${same}, libopenmpi-dev | mpi-default-dev"
    "attention layers on the devices of several MPI ranks, headers"
    "The header and the package files for CMake and pkg-config of libvkattn-mpi0.")
deb(mpi science "libvkattn-mpi0 ${same}" "attention layers on the devices of several MPI ranks, command"
    "The command vkattn-mpi runs layers and measures how they scale with ranks.")
set(CPACK_DEBIAN_LIB_PACKAGE_RECOMMENDS "mesa-vulkan-drivers | vulkan-icd")
set(CPACK_DEBIAN_DEV_PACKAGE_SUGGESTS libvulkan-dev)
set(CPACK_DEBIAN_PYTHON3_PACKAGE_SUGGESTS python3-torch)
set(CPACK_DEBIAN_MPI_PACKAGE_SUGGESTS mpi-default-bin)
include(CPack)
